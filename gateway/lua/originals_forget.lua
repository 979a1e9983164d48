-- Deletes the originals that no other session shares. texts.lua stands before it.
--
-- KEYS: the tenant's texts (3), the session's originals, then for each original: itself, its sessions
-- ARGV: session, handles

local index = {KEYS[1], KEYS[2], KEYS[3]}
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local deleted = 0
for at = 2, #ARGV do
  local key, sessions = KEYS[2 * at + 1], KEYS[2 * at + 2]
  redis.call('ZREM', sessions, ARGV[1])
  redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now_ms)
  if redis.call('ZCARD', sessions) == 0 then
    text_gone(index, 'o:' .. ARGV[at])
    deleted = deleted + redis.call('UNLINK', key, sessions)
  end
end
redis.call('UNLINK', KEYS[4])
texts_bounded(index, now_ms, math.huge)
return deleted
