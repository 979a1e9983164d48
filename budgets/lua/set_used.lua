-- Says how much of one limit has been used. What calls that run have reserved stays on top of it, so that they settle
-- as if nothing had happened.
--
-- KEYS: buckets, leases, stale
-- ARGV: used (micro-units), grace us, terms of the one limit
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, what was used before, what is reserved.

local limits, known = limits_of(ARGV[3], '')
local limit, used, grace_us = limits[1], tonumber(ARGV[1]), tonumber(ARGV[2])
if limit.kind == 'q' and (now_us < limit.one or now_us >= limit.two) then return {-1, now_us, 0, 0} end

local running, back = outstanding()
local due = math.min(back[limit.name] or 0, limit.bucket.used) -- the next reservation takes it off
local reserved = math.min(running[limit.name] or 0, limit.bucket.used - due)

local before = limit.bucket.used - due - reserved
local gone_us = put(limit, used + reserved + due, grace_us)
write(known)
live(KEYS, gone_us - now_us)
return {1, now_us, before, reserved}
