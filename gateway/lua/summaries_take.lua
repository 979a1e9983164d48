-- Gives a record that is there, or the right to make it, which ends by itself.
--
-- KEYS: the tenant's texts by last use, the session's records, who makes one now
-- ARGV: the records' member, the record's name, a token, the lease ms, 1 if a record that is there is of no use
-- Gives: {'ready', record}, {'busy'} or {'taken'}

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_ms = tonumber(ARGV[4])
local record = ARGV[5] ~= '1' and redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('HGET', KEYS[2], ARGV[2])
if record then return {'ready', record} end
local until_ms = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', ' (%d+)$')
if until_ms and tonumber(until_ms) > now_ms then return {'busy'} end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3] .. ' ' .. string.format('%d', now_ms + lease_ms))
redis.call('PEXPIRE', KEYS[3], math.max(lease_ms, redis.call('PTTL', KEYS[3])))
return {'taken'}
