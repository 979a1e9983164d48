-- Replaces what was reserved by what was used, in the windows it was taken from. The second settling of a lease does
-- nothing.
--
-- ARGV: lease as it was reserved; 0 if it was, 1 if nobody knows (the answer never came), 2 if it never was; grace us,
--       terms, MessagePack of the amounts used by dimension, and for records how many to keep and the records; their
--       stream is the last of the keys. Of what never was reserved the key before it holds marks
-- Gives: 1, or 0 if it was settled already.

local lease, unknown, unreserved, grace_us = ARGV[1], ARGV[2] == '1', ARGV[2] == '2', tonumber(ARGV[3])
local limits, known = limits_of(ARGV[4], lease)
local id = string.match(lease, '^[^;]+')

for _, limit in ipairs(limits) do
  if limit.kind == 'c' then redis.call('ZREM', limit.key, id) end
end

-- What nobody knows of leaves a mark, so that settling it again finds that it has been, lease or no lease.
if unknown then
  local until_us = string.format('%.0f', now_us + grace_us)
  if redis.call('ZADD', leases, 'NX', until_us, SETTLED .. id) == 0 then return 0 end
  live({leases}, grace_us)
end

-- Nor does a lease tell of what never was reserved. The newest marks are kept: it is sent again soon, or hardly ever.
if unreserved then
  local marks, KEPT_MARKS = KEYS[#KEYS - 1], 16384
  if redis.call('ZADD', marks, 'NX', now_us, id) == 0 then return 0 end
  redis.call('ZREMRANGEBYRANK', marks, 0, -1 - KEPT_MARKS)
  live({marks}, grace_us)
end

local closed = false
if not unreserved and redis.call('ZREM', leases, lease) == 0 then
  closed = redis.call('ZREM', leases, CLOSED .. lease) == 1
  unreserved = unknown and not closed
  if not closed and not unreserved then return 0 end
end

local amounts, last_us = cmsgpack.unpack(ARGV[5]), now_us
for _, limit in ipairs(limits) do
  if limit.kind ~= 'c' then
    local b = limit.bucket
    local reserved = unreserved and 0 or closed and limit.kept or limit.amount
    local before = math.max(0, b.used - reserved)
    local used = math.max(0, b.used + amounts[limit.place] * limit.scale - reserved)
    if limit.strict then used = math.max(before, math.min(used, limit.capacity)) end
    last_us = math.max(last_us, put(limit, used, grace_us))
  end
end
if #limits > 0 then
  write(known)
  live({buckets, stale}, last_us - now_us)
end

local KEEP, RECORD, RECORD_TTL_US = 6, 7, 400 * 86400 * 1000000
if ARGV[RECORD] then
  local stream = KEYS[#KEYS]
  for number = RECORD, #ARGV do
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[KEEP], '*', 'r', ARGV[number])
  end
  live({stream}, RECORD_TTL_US)
end
return 1
