-- Reserves on every limit that bounds a call, or on none.
--
-- ARGV: the call's id, lease us, grace us, terms, MessagePack of three lists by dimension: what is taken, what of it stays
--       charged if nobody settles, what strict limits are asked for
-- Gives: the number of the limit that refused (0: none; -1: a quota's window is not the one that is open now), how long
-- until it would pass, the time, what is in use of each limit, the numbers of limits in shadow that would have refused,
-- the lease.

local id, lease_us, grace_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local NEVER_US, SLOT_WAIT_US = 1e18, 1000000
local limits, known = limits_of(ARGV[4])
local taken, kept, most = unpack(cmsgpack.unpack(ARGV[5]))

local lease = id
for _, limit in ipairs(limits) do
  if limit.kind == 'q' and (now_us < limit.one or now_us >= limit.two) then return {-1, 0, now_us, {}, {}, ''} end
  if limit.kind ~= 'c' then
    limit.amount = (limit.strict and most or taken)[limit.place] * limit.scale
    limit.kept = limit.strict and limit.amount or kept[limit.place] * limit.scale
    lease = lease .. string.format(';%s %.0f %.0f', limit.name, limit.amount, limit.kept)
  end
end

-- Leases that ran out: their holder died or is very late. The prompt stays charged, the rest flows back. A closed
-- lease is kept for the grace time, so that a late settling still charges the truth.
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now_us, 'LIMIT', 0, 64)) do
  redis.call('ZREM', leases, expired)
  if string.sub(expired, 1, #CLOSED) ~= CLOSED then
    -- A reservation that came after its own settling, out of a connection that was given up: none of it stays.
    local late = redis.call('ZSCORE', leases, SETTLED .. string.match(expired, '^[^;]+'))
    for name, amount, kept in string.gmatch(expired, ';(%S+) (%d+) (%d+)') do
      if late then kept = 0 end
      known[name] = known[name] or parsed(redis.call('HGET', buckets, name))
      local b = known[name]
      if not b.fresh then
        b.used, b.changed = math.max(0, b.used - (tonumber(amount) - tonumber(kept))), true
      end
    end
    redis.call('ZADD', leases, now_us + grace_us, CLOSED .. expired)
  end
end

-- A call that is larger than the whole bucket passes when the bucket is full: it would never pass otherwise. Only what
-- is strict refuses it for good.
local function wait_us(limit)
  if limit.kind == 'c' then
    redis.call('ZREMRANGEBYSCORE', limit.key, '-inf', now_us)
    limit.count = redis.call('ZCARD', limit.key)
    return limit.count < limit.capacity and 0 or SLOT_WAIT_US
  end
  if limit.strict and limit.amount > limit.capacity then return NEVER_US end
  local room = math.max(0, limit.capacity - math.max(1, limit.amount))
  local excess = limit.bucket.used - room
  if excess <= 0 then return 0 end
  return limit.kind == 'q' and limit.two - now_us or math.ceil(excess * limit.two / limit.one)
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

local used, last_us = {}, now_us + lease_us + grace_us
for number, limit in ipairs(limits) do
  local b = limit.bucket
  if limit.kind == 'c' then
    if refused == 0 then
      redis.call('ZADD', limit.key, now_us + lease_us, id)
      limit.count = limit.count + 1
    end
    used[number] = limit.count
  else
    if refused == 0 then last_us = math.max(last_us, put(limit, b.used + limit.amount, lease_us + grace_us)) end
    used[number] = b.used
  end
end
write(known)

if refused == 0 then
  redis.call('ZADD', leases, now_us + lease_us, lease)
  live(KEYS, last_us - now_us)
end
return {refused, longest, now_us, used, shadowed, lease}
