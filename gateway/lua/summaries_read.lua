-- The records of these names, and more time for all of the session's: they are in use.
--
-- KEYS: the tenant's texts (three), the session's records
-- ARGV: the records' member, ms to live, names
-- Gives: each record, or false

local index = {KEYS[1], KEYS[2], KEYS[3]}
local names = {unpack(ARGV, 3)}
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) or redis.call('EXISTS', KEYS[4]) == 0 then return {} end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('PEXPIRE', KEYS[4], ARGV[2])
text_used(index, now_ms, ARGV[1], '', tonumber(ARGV[2]))
for _, key in ipairs(index) do
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
end
return redis.call('HMGET', KEYS[4], unpack(names))
