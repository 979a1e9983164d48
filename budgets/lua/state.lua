-- How limits stand; writes nothing.
--
-- ARGV: terms, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, what is in use of each limit, and how much
-- of that is reserved by calls that run; in MessagePack, for a reply's integers end at 64 bits.

local names, rows = cmsgpack.unpack(ARGV[1])
local since_us, until_us = decode('<dd', rows)
if now_us < since_us or now_us >= until_us then return {-1, now_us, '', ''} end

local running, back = outstanding()
local stored, in_use, reserved, slots = call('HMGET', buckets, unpack(names)), {}, {}, 0
for n, name in ipairs(names) do
  local kind, _, _, _, one, two = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
  if kind == CALLS then
    slots = slots + 1
    in_use[n] = call('ZCOUNT', KEYS[SLOTS + slots], now_us, '+inf')
    reserved[n] = in_use[n]
  else
    local used = bucket(stored[n], name, kind, one, two)
    in_use[n] = max(0, used - (back[name] or 0))
    reserved[n] = math.min(in_use[n], running[name] or 0)
  end
end
return {1, now_us, cmsgpack.pack(in_use), cmsgpack.pack(reserved)}
