-- Reserves on every limit of a tenant, or on none.
--
-- KEYS: buckets, leases (one tenant's, one hash tag)
-- ARGV: lease, lease us, grace us, then for each limit: bucket, capacity, refill, refill period us, amount,
--       1 if the limit refuses
--
-- A bucket is what is in use ("used at_us"): it leaks `refill` every period, down to nothing, and may hold more than
-- its capacity (debt). Amounts are integers (micro-units), exact below 2^53.
-- A lease is "id;bucket amount kept;bucket amount kept;...": what was taken, and what stays charged if nobody settles.

local buckets, leases = KEYS[1], KEYS[2]
local lease, lease_us, grace_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local HEAD, WIDTH = 3, 6
local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
local CLOSED = 'closed;'
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local function parsed(stored)
  local used, at = string.match(stored or '', '^(%d+) (%d+)$')
  return {used = tonumber(used or 0), at = tonumber(at or now_us), changed = false}
end

-- What a clock that went back would give is nothing, not a charge.
local function leak(b, refill, period_us)
  local leaked = math.floor(math.max(0, now_us - b.at) * refill / period_us)
  if leaked > 0 then b.used, b.at = math.max(0, b.used - leaked), now_us end
  if b.used == 0 then b.at = math.max(b.at, now_us) end
end

local names, known, limits = {}, {}, {}
for at = HEAD + 1, #ARGV, WIDTH do names[#names + 1] = ARGV[at] end
local stored = redis.call('HMGET', buckets, unpack(names))
for number, name in ipairs(names) do
  local at = HEAD + (number - 1) * WIDTH
  known[name] = known[name] or parsed(stored[number])
  limits[number] = {
    bucket = known[name], capacity = tonumber(ARGV[at + 2]), refill = tonumber(ARGV[at + 3]),
    period_us = tonumber(ARGV[at + 4]), amount = tonumber(ARGV[at + 5]), refuses = ARGV[at + 6] == '1',
  }
  leak(known[name], limits[number].refill, limits[number].period_us)
end

-- Leases that ran out: their holder died or is very late. The prompt stays charged, the rest flows back. A closed
-- lease is kept for the grace time, so that a late settling still charges the truth.
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now_us, 'LIMIT', 0, 64)) do
  redis.call('ZREM', leases, expired)
  if string.sub(expired, 1, #CLOSED) ~= CLOSED then
    for name, amount, kept in string.gmatch(expired, ';(%S+) (%d+) (%d+)') do
      known[name] = known[name] or parsed(redis.call('HGET', buckets, name))
      local b = known[name]
      b.used, b.changed = math.max(0, b.used - (tonumber(amount) - tonumber(kept))), true
    end
    redis.call('ZADD', leases, now_us + grace_us, CLOSED .. expired)
  end
end

-- A call that is larger than the whole bucket passes when the bucket is full: it would never pass otherwise.
local function wait_us(limit)
  local room = math.max(0, limit.capacity - math.max(1, limit.amount))
  local excess = limit.bucket.used - room
  return excess <= 0 and 0 or math.ceil(excess * limit.period_us / limit.refill)
end

local refused, longest, shadowed = 0, 0, {}
for number, limit in ipairs(limits) do
  local wait = wait_us(limit)
  if wait > 0 and not limit.refuses then
    shadowed[#shadowed + 1] = number
  elseif wait > longest then
    refused, longest = number, wait
  end
end

local used, drain_us = {}, 0
for number, limit in ipairs(limits) do
  local b = limit.bucket
  if refused == 0 then b.used, b.changed = b.used + limit.amount, true end
  drain_us = math.max(drain_us, b.used / limit.refill * limit.period_us)
  used[number] = b.used
end
local written = {}
for name, b in pairs(known) do
  if b.changed then
    written[#written + 1] = name
    written[#written + 1] = string.format('%.0f %.0f', b.used, b.at)
  end
end
if #written > 0 then redis.call('HSET', buckets, unpack(written)) end

if refused == 0 then
  redis.call('ZADD', leases, now_us + lease_us, lease)
  -- An empty bucket is the same as none, so both keys may go once everything has leaked or been closed. Set with
  -- room, so that most calls find enough left.
  local ttl_ms = math.min(LONGEST_TTL_MS, math.ceil((drain_us + lease_us + grace_us) / 1000))
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, 2 * ttl_ms) end
  end
end
return {refused, longest, now_us, used, shadowed}
