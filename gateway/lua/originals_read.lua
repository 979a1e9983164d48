-- An original and how many ms it has left; nothing if it is not there. Reads only.
--
-- KEYS: the tenant's texts by their end, the original
-- ARGV: its member

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends_ms = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
if ends_ms <= now_ms then return false end
local sealed = redis.call('GET', KEYS[2])
return sealed and {sealed, ends_ms - now_ms}
