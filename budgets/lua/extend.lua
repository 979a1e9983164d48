-- Takes more for a call that runs, from every elastic limit or from none, and renews its lease either way.
--
-- KEYS: last comes the call's own, where its lease is
-- ARGV: terms; MessagePack of the call's id, lease us, grace us, and how much more is taken, by dimension
-- Gives: the numbers of the limits that refused, none if it was taken; -1 alone if the lease is no longer there.

local held, terms = KEYS[#KEYS], told(ARGV[1])
local id, lease_us, grace_us, more = unpack(cmsgpack.unpack(ARGV[2]))
local lease = call('GET', held)
if not lease or call('ZREM', leases, lease) == 0 then return {-1} end
local l, known = limits_of(terms, lease)

local refused, longer, lasting, extra = {}, {id}, {buckets, leases, stale}, {}
for n = 1, l.count do
  local b = l.bucket[n]
  if b then
    extra[n] = l.strict[n] and 0 or more[l.place[n]] * l.scale[n]
    longer[#longer + 1] = format('%s %.0f %.0f', l.name[n], l.amount[n] + extra[n], l.kept[n] + extra[n])
    if l.refuses[n] and extra[n] > 0 and b.used + extra[n] > l.capacity[n] then refused[#refused + 1] = n end
  else
    call('ZADD', l.key[n], 'XX', now_us + lease_us, id)
    lasting[#lasting + 1] = l.key[n]
  end
end

local last_us = now_us + lease_us + grace_us
if #refused == 0 then
  lease = table.concat(longer, ';')
  for n, amount in pairs(extra) do
    if amount > 0 then last_us = max(last_us, put(l, n, l.bucket[n].used + amount, lease_us + grace_us)) end
  end
  write(known)
end
call('ZADD', leases, now_us + lease_us, lease)
call('SET', held, lease, 'PX', ceil((lease_us + grace_us) / 1000))
live(lasting, last_us - now_us)
return refused
