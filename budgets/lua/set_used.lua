-- Says how much of one limit has been used. What calls that run have reserved stays on top of it, so that they settle
-- as if nothing had happened.
--
-- ARGV: used (micro-units), grace us, terms of the one limit, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, MessagePack of what was used
-- before and of what is reserved.

local set, grace_us, names, rows = tonumber(ARGV[1]), tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3])
local since_us, until_us = decode('<dd', rows)
if now_us < since_us or now_us >= until_us then return {-1, now_us, ''} end

local name, kind, _, _, _, one, two = names[1], decode(ROW, rows, FIRST_ROW)
local in_use, at, gone = bucket(call('HGET', buckets, name), name, kind, one, two)
local running, back = outstanding()
local due = math.min(back[name] or 0, in_use) -- the next reservation takes it off
local reserved = math.min(running[name] or 0, in_use - due)

local used = set + reserved + due
local _, room = going_us(kind, used, one, two, grace_us)
room = max(gone, room)
write({name, encode(BUCKET, used, at, room)}, gone == 0 and {room, name} or {}, room)
return {1, now_us, cmsgpack.pack({in_use - due - reserved, reserved})}
