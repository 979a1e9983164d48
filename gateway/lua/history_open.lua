-- Opens a history for one turn, which has it to itself until it ends.
--
-- KEYS: the history, the tenant's texts: by last use, by end, bytes
-- ARGV: member of the texts, name of the turn, its lease ms, 1 to begin a history, messages that the client believes are
--       there (-1: it does not say)
-- Gives: what was found, messages there, and for an open one its items, its bytes and the items themselves; for a busy
-- one how long (ms).

local history, index = KEYS[1], {KEYS[2], KEYS[3], KEYS[4]}
local member, turn, lease_ms, begins, believed = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local held = redis.call('HMGET', history, 'messages', 'items', 'bytes', 'turn', 'until')
local messages, items = tonumber(held[1] or 0), tonumber(held[2] or 0)

-- A text that was taken off the list is gone although its key may still wait to be deleted.
if messages > 0 and not redis.call('ZSCORE', index[1], member) then
  redis.call('DEL', history)
  messages, items, held = 0, 0, {}
end
if held[4] and tonumber(held[5]) > now_ms then return {'busy', messages, tonumber(held[5]) - now_ms} end
if begins then
  if messages > 0 then return {'exists', messages} end
  redis.call('DEL', history)
  redis.call('HSET', history, 'begun', now_ms)
else
  if messages == 0 then return {'gone', 0} end
  if believed >= 0 and believed ~= messages then return {'moved', messages} end
  if held[4] and believed < 0 then return {'unsettled', messages} end
end

redis.call('HSET', history, 'turn', turn, 'until', now_ms + lease_ms)
local ttl_ms = math.max(redis.call('PTTL', history), 2 * lease_ms)
redis.call('PEXPIRE', history, ttl_ms)
if messages > 0 then
  text_used(index, now_ms, member, nil, ttl_ms)
  texts_bounded(index, now_ms, math.huge)
end
local found = {'open', messages, items, tonumber(held[3] or 0)}
for item = 0, items - 1 do found[#found + 1] = redis.call('HGET', history, 'i' .. item) or '' end
return found
