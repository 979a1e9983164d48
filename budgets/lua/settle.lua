-- Replaces what was reserved by what was used, in the windows it was taken from. The second settling of a lease does
-- nothing.
--
-- ARGV: lease as it was reserved, 1 if it never was (the store was away then), grace us, terms,
--       amounts used, in the order of the lease, and for a record how many to keep and the record; its stream is the
--       last of the keys
-- Gives: 1, or 0 if it was settled already.

local lease, unreserved, grace_us = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local limits, known = limits_of(ARGV[4], lease)
local id = string.match(lease, '^[^;]+')

for _, limit in ipairs(limits) do
  if limit.kind == 'c' then redis.call('ZREM', limit.key, id) end
end

local closed = false
if not unreserved and redis.call('ZREM', leases, lease) == 0 then
  if redis.call('ZREM', leases, CLOSED .. lease) == 0 then return 0 end
  closed = true
end

local amounts, last_us = string.gmatch(ARGV[5], '%d+'), now_us
for _, limit in ipairs(limits) do
  if limit.kind ~= 'c' then
    local b = limit.bucket
    local reserved = unreserved and 0 or closed and limit.kept or limit.amount
    local before = math.max(0, b.used - reserved)
    local used = math.max(0, b.used + tonumber(amounts()) - reserved)
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
  redis.call('XADD', stream, 'MAXLEN', '~', ARGV[KEEP], '*', 'r', ARGV[RECORD])
  live({stream}, RECORD_TTL_US)
end
return 1
