-- Reserves on every limit of a tenant, or on none.
--
-- KEYS: buckets, reservations, leases (one tenant's, one hash tag)
-- ARGV: reservation id, lease us, grace us, then for each limit: bucket, capacity, refill, refill period us,
--       amount, part of it to keep if the lease expires, 1 if the limit refuses
--
-- A bucket is what is in use ("used at_us"): it leaks `refill` every period, down to nothing, and may hold more than
-- its capacity (debt). Amounts are integers (micro-units) and stay exact below 2^53.

local buckets, reservations, leases = KEYS[1], KEYS[2], KEYS[3]
local id, lease_us, grace_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local HEAD, WIDTH = 3, 7
local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end

local cache = {}
local function bucket(name)
  if not cache[name] then
    local stored = redis.call('HGET', buckets, name)
    local used, at = string.match(stored or '', '^(%d+) (%d+)$')
    cache[name] = {used = tonumber(used or 0), at = tonumber(at or now_us), changed = false}
  end
  return cache[name]
end

-- What a clock that went back would give is nothing, not a charge.
local function leak(b, refill, period_us)
  local leaked = math.floor(math.max(0, now_us - b.at) * refill / period_us)
  if leaked > 0 then
    b.used, b.at = math.max(0, b.used - leaked), now_us
  end
  if b.used == 0 then b.at = math.max(b.at, now_us) end
end

local limits = {}
for at = HEAD + 1, #ARGV, WIDTH do
  local limit = {
    name = ARGV[at], capacity = tonumber(ARGV[at + 1]), refill = tonumber(ARGV[at + 2]),
    period_us = tonumber(ARGV[at + 3]), amount = tonumber(ARGV[at + 4]), kept = tonumber(ARGV[at + 5]),
    refuses = ARGV[at + 6] == '1', bucket = bucket(ARGV[at]),
  }
  leak(limit.bucket, limit.refill, limit.period_us)
  limits[#limits + 1] = limit
end

-- Leases that ran out: their holder died or is very late. The prompt stays charged, the rest flows back. The
-- reservation is kept for the grace time, so that a late settling still charges the truth.
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now_us, 'LIMIT', 0, 64)) do
  local packed = redis.call('HGET', reservations, expired)
  local r = packed and cmsgpack.unpack(packed)
  if not r or r.closed then
    redis.call('HDEL', reservations, expired)
    redis.call('ZREM', leases, expired)
  else
    for _, item in ipairs(r.items) do
      local b = bucket(item[1])
      b.used, b.changed = math.max(0, b.used - (item[2] - item[3])), true
      item[2] = item[3]
    end
    r.closed = true
    redis.call('HSET', reservations, expired, cmsgpack.pack(r))
    redis.call('ZADD', leases, now_us + grace_us, expired)
  end
end

-- A call that is larger than the whole bucket passes when the bucket is full: it would never pass otherwise.
local function wait_us(limit)
  local room = math.max(0, limit.capacity - math.max(1, limit.amount))
  local excess = limit.bucket.used - room
  return excess <= 0 and 0 or math.ceil(excess * limit.period_us / limit.refill)
end

local refused, longest = 0, 0
local shadowed = {}
for number, limit in ipairs(limits) do
  local wait = wait_us(limit)
  if wait > 0 and not limit.refuses then
    shadowed[#shadowed + 1] = number
  elseif wait > longest then
    refused, longest = number, wait
  end
end

local items, state, longest_drain_us = {}, {}, 0
for _, limit in ipairs(limits) do
  local b = limit.bucket
  if refused == 0 then
    b.used, b.changed = b.used + limit.amount, true
    items[#items + 1] = {limit.name, limit.amount, limit.kept}
  end
end
for _, limit in ipairs(limits) do
  state[#state + 1] = limit.bucket.used
  longest_drain_us = math.max(longest_drain_us, limit.bucket.used / limit.refill * limit.period_us)
end
for name, b in pairs(cache) do
  if b.changed then redis.call('HSET', buckets, name, string.format('%.0f %.0f', b.used, b.at)) end
end
if refused == 0 then
  redis.call('HSET', reservations, id, cmsgpack.pack({items = items}))
  redis.call('ZADD', leases, now_us + lease_us, id)
  -- An empty bucket is the same as none, so all three may go once everything has leaked or been closed.
  local ttl_ms = math.min(LONGEST_TTL_MS, math.ceil((longest_drain_us + lease_us + 2 * grace_us) / 1000))
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, math.max(ttl_ms, redis.call('PTTL', key))) end
end
return {refused, longest, now_us, state, shadowed}
