-- Deletes a session, and remembers when, so that no call that read it before writes it again.
--
-- KEYS: the session, the tenant's live sessions, its deleted ones
-- ARGV: session id
-- Gives: 1 if there was one.

local KEPT_MS, MOST = 24 * 3600 * 1000, 10000
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local listed = redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('UNLINK', KEYS[1])
redis.call('ZADD', KEYS[3], now_ms, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now_ms - KEPT_MS)
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -MOST - 1)
redis.call('PEXPIRE', KEYS[3], KEPT_MS)
return listed
