-- How limits stand; writes nothing.
--
-- ARGV: terms, whole
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, what is in use of each limit, and how much
-- of that is reserved by calls that run; in MessagePack, for a reply's integers end at 64 bits.

local l = limits_of(ARGV[1])
if misdated(l) then return {-1, now_us, {}, {}} end

local reserved, back = outstanding()
local in_use, held = {}, {}
for n = 1, l.count do
  if l.kind[n] == 'c' then
    in_use[n] = call('ZCOUNT', l.key[n], now_us, '+inf')
    held[n] = in_use[n]
  else
    in_use[n] = max(0, l.bucket[n].used - (back[l.name[n]] or 0))
    held[n] = min(in_use[n], reserved[l.name[n]] or 0)
  end
end
return {1, now_us, cmsgpack.pack(in_use), cmsgpack.pack(held)}
