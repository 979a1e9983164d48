-- Says how much of one limit has been used. What calls that run have reserved stays on top of it, so that they settle
-- as if nothing had happened.
--
-- ARGV: used (micro-units), grace us, terms of the one limit, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, MessagePack of what was used
-- before and of what is reserved.

local set, grace_us, fields, layouts, rows = tonumber(ARGV[1]), tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3])
local since_us, until_us = decode('<dd', rows)
if now_us < since_us or now_us >= until_us then return {-1, now_us, ''} end

local name, kind, _, _, _, one, two = names_of(layouts, rows)[1], decode(ROW, rows, FIRST_ROW)
local written = {}
local board = arranged(fields[1], call('HGET', buckets, fields[1]), layouts[1], layouts[2], written)
local in_use, at, gone = decode(BUCKET, board, HEAD_BYTES + 1)
if kind == RATE then in_use, at = flowed(in_use, at, one, two) end
local running, back = outstanding()
local due = math.min(back[name] or 0, in_use) -- the next reservation takes it off
local reserved = math.min(running[name] or 0, in_use - due)

local used = set + reserved + due
gone = max(gone, grace_us + (kind == QUOTA and two or now_us + used / one * two))
put(written, fields[1], layouts[1], {used, at, gone}, BUCKET)
write(written, gone)
return {1, now_us, cmsgpack.pack({in_use - due - reserved, reserved})}
