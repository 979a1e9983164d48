-- How limits stand; writes nothing.
--
-- ARGV: terms
-- Gives: 1 (-1: a quota's window is not the one that is open now), the time, what is in use of each limit, and how much
-- of that is reserved by calls that run.

local limits = limits_of(ARGV[1], '')
for _, limit in ipairs(limits) do
  if limit.kind == 'q' and (now_us < limit.one or now_us >= limit.two) then return {-1, now_us, {}, {}} end
end

local reserved, back = outstanding()
local in_use, held = {}, {}
for number, limit in ipairs(limits) do
  if limit.kind == 'c' then
    in_use[number] = redis.call('ZCOUNT', limit.key, now_us, '+inf')
    held[number] = in_use[number]
  else
    in_use[number] = math.max(0, limit.bucket.used - (back[limit.name] or 0))
    held[number] = math.min(in_use[number], reserved[limit.name] or 0)
  end
end
return {1, now_us, in_use, held}
