-- Takes more for a call that runs, from every elastic limit or from none, and renews its lease either way.
--
-- ARGV: lease, the lease as it will be, lease us, grace us, terms
-- Gives: the numbers of the limits that refused, none if it was taken; -1 alone if the lease is no longer there.

local lease, longer, lease_us, grace_us = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('ZREM', leases, lease) == 0 then return {-1} end
local limits, known = limits_of(ARGV[5], longer)
local id = string.match(lease, '^[^;]+')

local refused, taken = {}, string.gmatch(lease, ';%S+ (%d+) %d+')
for number, limit in ipairs(limits) do
  if limit.kind == 'c' then
    redis.call('ZADD', limit.key, 'XX', now_us + lease_us, id)
  else
    limit.more = limit.amount - tonumber(taken())
    local above = limit.more > 0 and limit.bucket.used + limit.more > limit.capacity
    if above and limit.refuses then refused[#refused + 1] = number end
  end
end

local last_us = now_us + lease_us + grace_us
if #refused == 0 then
  for _, limit in ipairs(limits) do
    if limit.kind ~= 'c' and limit.more > 0 then
      last_us = math.max(last_us, put(limit, limit.bucket.used + limit.more, lease_us + grace_us))
    end
  end
  write(known)
end
redis.call('ZADD', leases, now_us + lease_us, #refused == 0 and longer or lease)
live(KEYS, last_us - now_us)
return refused
