-- How limits stand; writes nothing.
--
-- ARGV: terms, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, what is in use of each limit, and how much
-- of that is reserved by calls that run; in MessagePack, for a reply's integers end at 64 bits.

local fields, layouts, rows = cmsgpack.unpack(ARGV[1])
local since_us, until_us = decode('<dd', rows)
if now_us < since_us or now_us >= until_us then return {-1, now_us, '', ''} end

local names, running, back = names_of(layouts, rows), outstanding()
local stored, in_use, reserved, slots, n = call('HMGET', buckets, unpack(fields)), {}, {}, 0, 0
for b = 1, #fields do
  local board, from = arranged(fields[b], stored[b], layouts[3 * b - 2], layouts[3 * b - 1], {}), HEAD_BYTES + 1
  while n < layouts[3 * b] do
    n = n + 1
    local kind, _, _, _, one, two = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
    if kind == CALLS then
      slots = slots + 1
      in_use[n] = call('ZCOUNT', KEYS[SLOTS + slots], now_us, '+inf')
      reserved[n] = in_use[n]
    else
      local used, at = decode(BUCKET, board, from)
      from = from + BUCKET_BYTES
      if kind == RATE then used = flowed(used, at, one, two) end
      in_use[n] = max(0, used - (back[names[n]] or 0))
      reserved[n] = math.min(in_use[n], running[names[n]] or 0)
    end
  end
end
return {1, now_us, cmsgpack.pack(in_use), cmsgpack.pack(reserved)}
