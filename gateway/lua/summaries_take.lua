-- Gives a record that is there, or the right to make it, which ends by itself.
--
-- KEYS: the tenant's texts by last use, the session's records, who makes one now, the tenant's deleted sessions
-- ARGV: the records' member, the record's name, a token, the lease ms, 1 if a record that is there is of no use, the
--       session, when it was read (ms by this server; 0: not known)
-- Gives: {'ready', record}, {'busy'}, {'taken'}, or {'deleted'}: the session was, since it was read

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_ms = tonumber(ARGV[4])
local deleted_ms, read_ms = redis.call('ZSCORE', KEYS[4], ARGV[6]), tonumber(ARGV[7])
if deleted_ms and read_ms > 0 and tonumber(deleted_ms) >= read_ms then return {'deleted'} end
local record = ARGV[5] ~= '1' and redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('HGET', KEYS[2], ARGV[2])
if record then return {'ready', record} end
local until_ms = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', ' (%d+)$')
if until_ms and tonumber(until_ms) > now_ms then return {'busy'} end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3] .. ' ' .. string.format('%d', now_ms + lease_ms))
redis.call('PEXPIRE', KEYS[3], math.max(lease_ms, redis.call('PTTL', KEYS[3])))
return {'taken'}
