-- Replaces what was reserved by what was used, in the windows it was taken from. The second settling of a lease does
-- nothing.
--
-- KEYS: behind the slots comes the call's own, where its lease is (the marks, of what never was reserved); with records,
--       their stream is the last
-- ARGV: terms; MessagePack of the call's id, 0 if it was reserved, 1 if nobody knows (the answer never came), 2 if it
--       never was and has no limits, grace us, the amounts used by dimension; for records how many to keep, and the
--       records
-- Gives: 1, or 0 if it was settled already.

local KEEP, RECORD, RECORD_TTL_US = 3, 4, 400 * 86400 * 1000000
local held = ARGV[RECORD] and KEYS[#KEYS - 1] or KEYS[#KEYS]
local id, made, grace_us, amounts = unpack(cmsgpack.unpack(ARGV[2]))
local unknown, unreserved = made == 1, made == 2

local lease, l, known = nil, {count = 0}, {}
if not unreserved then
  local terms = told(ARGV[1])
  lease = call('GET', held)
  if not (lease or unknown) then return 0 end
  l, known = limits_of(terms, lease)
end

for _, key in pairs(l.key or {}) do call('ZREM', key, id) end

-- What nobody knows of leaves a mark, so that settling it again finds that it has been, lease or no lease.
if unknown then
  if call('ZADD', leases, 'NX', format('%.0f', now_us + grace_us), SETTLED .. id) == 0 then return 0 end
  live({leases}, grace_us)
end

-- Nor does a lease tell of what never was reserved. The newest marks are kept: it is sent again soon, or hardly ever.
if unreserved then
  local marks, KEPT_MARKS = held, 16384
  if call('ZADD', marks, 'NX', now_us, id) == 0 then return 0 end
  call('ZREMRANGEBYRANK', marks, 0, -1 - KEPT_MARKS)
  live({marks}, grace_us)
end

local closed = false
if not unreserved and not (lease and call('ZREM', leases, lease) == 1) then
  closed = lease and call('ZREM', leases, CLOSED .. lease) == 1
  unreserved = unknown and not closed
  if not closed and not unreserved then return 0 end
end
if lease then call('DEL', held) end

local last_us = now_us
for n = 1, l.count do
  local b = l.bucket[n]
  if b then
    local reserved = unreserved and 0 or closed and l.kept[n] or l.amount[n]
    local before = max(0, b.used - reserved)
    local used = max(0, b.used + amounts[l.place[n]] * l.scale[n] - reserved)
    if l.strict[n] then used = max(before, min(used, l.capacity[n])) end
    last_us = max(last_us, put(l, n, used, grace_us))
  end
end
if l.count > 0 then
  write(known)
  live({buckets, stale}, last_us - now_us)
end

if ARGV[RECORD] then
  local stream = KEYS[#KEYS]
  for number = RECORD, #ARGV do
    call('XADD', stream, 'MAXLEN', '~', ARGV[KEEP], '*', 'r', ARGV[number])
  end
  live({stream}, RECORD_TTL_US)
end
return 1
