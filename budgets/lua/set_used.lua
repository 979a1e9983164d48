-- Says how much of one limit has been used. What calls that run have reserved stays on top of it, so that they settle
-- as if nothing had happened.
--
-- ARGV: used (micro-units), grace us, terms of the one limit, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, MessagePack of what was used
-- before and of what is reserved.

local l, known = limits_of(ARGV[3])
local used, grace_us, in_use = tonumber(ARGV[1]), tonumber(ARGV[2]), l.bucket[1].used
if misdated(l) then return {-1, now_us, ''} end

local running, back = outstanding()
local due = min(back[l.name[1]] or 0, in_use) -- the next reservation takes it off
local reserved = min(running[l.name[1]] or 0, in_use - due)

local gone_us = put(l, 1, used + reserved + due, grace_us)
write(known)
live({buckets, leases, stale}, gone_us - now_us)
return {1, now_us, cmsgpack.pack({in_use - due - reserved, reserved})}
