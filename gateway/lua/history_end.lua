-- Ends a turn of a history, or holds it for longer.
--
-- KEYS: the history, the tenant's texts: by last use, by end, bytes
-- ARGV: member of the texts, name of the turn, how, lease ms, idle TTL ms, absolute TTL ms, most bytes of the tenant's
--       texts, and for an item to append: messages in it, the item
--
-- How: `hold`, the turn goes on; `append`, it has ended, and this is what it adds; `undo`, it has ended and adds
-- nothing; `doubt`, nobody knows what it would add, and whoever comes next is told so.
-- Gives: 1 if it was done, 0 if the history is not this turn's any more; bytes of the tenant's texts; who went for them.

local history, index = KEYS[1], {KEYS[2], KEYS[3], KEYS[4]}
local member, turn, how, lease_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local idle_ms, absolute_ms, most_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('HGET', history, 'turn') ~= turn then return {0, -1, {}} end

if how == 'append' then
  local number = redis.call('HINCRBY', history, 'items', 1) - 1
  redis.call('HSET', history, 'i' .. number, ARGV[9])
  redis.call('HINCRBY', history, 'messages', ARGV[8])
  local bytes = redis.call('HINCRBY', history, 'bytes', #ARGV[9])
  redis.call('HDEL', history, 'turn', 'until')
  local begun_ms = tonumber(redis.call('HGET', history, 'begun'))
  local ttl_ms = math.max(1, math.min(idle_ms, begun_ms + absolute_ms - now_ms))
  redis.call('PEXPIRE', history, ttl_ms)
  text_used(index, now_ms, member, bytes, ttl_ms)
  local total, gone = texts_bounded(index, now_ms, most_bytes)
  return {1, total, gone}
end

local messages = tonumber(redis.call('HGET', history, 'messages') or 0)
if how == 'hold' then
  redis.call('HSET', history, 'until', now_ms + lease_ms)
  local ttl_ms = math.max(redis.call('PTTL', history), 2 * lease_ms)
  redis.call('PEXPIRE', history, ttl_ms)
  if messages > 0 then
    text_used(index, now_ms, member, nil, ttl_ms)
    texts_bounded(index, now_ms, math.huge)
  end
elseif how == 'doubt' and messages > 0 then
  redis.call('HSET', history, 'until', 0)
elseif messages > 0 then
  redis.call('HDEL', history, 'turn', 'until')
else
  redis.call('DEL', history)
end
return {1, -1, {}}
