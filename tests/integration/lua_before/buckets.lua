-- What both scripts know of limits and of what is in use of them; it stands before each of them.
--
-- KEYS: buckets, leases, stale, then the slots of every limit of calls at once (one hash tag)
--
-- The terms are MessagePack, for each limit: bucket, kind, capacity, two numbers, whether it refuses, whether it is
-- strict, micro-units in a unit, and the place of its dimension in lists of a call's amounts (whole units).
--   r (rate):   the numbers are what flows back and in how many us
--   q (quota):  the numbers are when its window begins and ends, us since 1970; nothing flows back
--   c (calls):  a sorted set of lease ids by deadline; what has run out does not count
-- A bucket is "used at_us gone_us": what was in use when, and from when on it is the same as none. It may hold more than
-- the capacity (debt). Amounts are integers (micro-units), exact below 2^53.
-- A lease is "id;bucket amount kept;bucket amount kept;..." for every limit but those of calls: what was taken, and
-- what stays charged if nobody settles.

local buckets, leases, stale = KEYS[1], KEYS[2], KEYS[3]
local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
local CLOSED, SETTLED = 'closed;', 'closed;settled;'
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local function parsed(stored)
  local used, at, gone = string.match(stored or '', '^(%d+) (%d+) ?(%d*)')
  return {
    used = tonumber(used or 0), at = tonumber(at or now_us), gone = tonumber(gone) or now_us, fresh = not stored,
    changed = false,
  }
end

-- What a clock that went back would give is nothing, not a charge.
local function leak(limit)
  if limit.kind ~= 'r' then return end
  local b = limit.bucket
  local leaked = math.floor(math.max(0, now_us - b.at) * limit.one / limit.two)
  if leaked > 0 then b.used, b.at = math.max(0, b.used - leaked), now_us end
  if b.used == 0 then b.at = math.max(b.at, now_us) end
end

-- The limits with what is in use of them now, and the buckets by name; with a lease, also what it took of each.
local function limits_of(terms, lease)
  local limits, names, known, slots = {}, {}, {}, 3
  local taken = string.gmatch(lease or '', ';%S+ (%d+) (%d+)')
  for number, told in ipairs(cmsgpack.unpack(terms)) do
    local name = told[1]
    local limit = {
      name = name, kind = told[2], capacity = told[3], one = told[4], two = told[5], refuses = told[6],
      strict = told[7], scale = told[8], place = told[9],
    }
    limits[number] = limit
    if limit.kind == 'c' then
      slots = slots + 1
      limit.key = KEYS[slots]
    else
      local amount, kept = taken()
      limit.amount, limit.kept = tonumber(amount), tonumber(kept)
      names[#names + 1] = name
    end
  end
  local stored = #names > 0 and redis.call('HMGET', buckets, unpack(names)) or {}
  for number, name in ipairs(names) do known[name] = known[name] or parsed(stored[number]) end
  for _, limit in ipairs(limits) do
    limit.bucket = known[limit.name]
    leak(limit)
  end
  return limits, known
end

-- Puts what is in use into the bucket. When all of it will have gone by itself, and `later` us have passed, the bucket
-- itself may go; gives that time.
local function put(limit, used, later)
  local b = limit.bucket
  b.used, b.changed = used, true
  b.gone = later + (limit.kind == 'q' and limit.two or now_us + math.ceil(used / limit.one * limit.two))
  return b.gone
end

-- Buckets that were changed; a new one is put down to be looked at when it will be empty, and each new one gives the
-- occasion to look at some that are due.
local function write(known)
  local written, made = {}, {}
  for name, b in pairs(known) do
    if b.changed then
      written[#written + 1] = name
      written[#written + 1] = string.format('%.0f %.0f %.0f', b.used, b.at, b.gone)
      if b.fresh then
        made[#made + 1] = string.format('%.0f', b.gone)
        made[#made + 1] = name
      end
    end
  end
  if #written > 0 then redis.call('HSET', buckets, unpack(written)) end
  if #made == 0 then return end
  redis.call('ZADD', stale, unpack(made))
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', stale, '-inf', now_us, 'LIMIT', 0, 16)) do
    local due = parsed(redis.call('HGET', buckets, name)).gone
    if due > now_us then
      redis.call('ZADD', stale, string.format('%.0f', due), name)
    else
      redis.call('HDEL', buckets, name)
      redis.call('ZREM', stale, name)
    end
  end
end

-- Keys may go once everything in them has. Set with room, so that most calls find enough left.
local function live(keys, ttl_us)
  local ttl_ms = math.min(LONGEST_TTL_MS, math.ceil(ttl_us / 1000) + 1)
  for _, key in ipairs(keys) do
    if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, 2 * ttl_ms) end
  end
end
