-- What all scripts know of limits and of what is in use of them; it stands before each of them.
--
-- KEYS: buckets, leases, held, stale, the buckets of the version before, terms, then the slots of every limit of calls at
--       once (one hash tag)
--
-- The terms are two values of MessagePack, one behind the other: a list of the names of the limits' buckets, and a string
-- of numbers as `struct` packs them, little-endian. First in it, as doubles, from when till when (us since 1970) these
-- are the windows of quotas that are open; then a ROW for each limit: its kind, what it does (0: nothing, it is in shadow;
-- 1: it refuses; 2: and callers are told how the tightest such limit of its dimension stands), the place of what it is
-- asked for in the lists of a call's amounts, capacity, and two numbers:
--   RATE:   what flows back and in how many us
--   QUOTA:  when its window begins and ends, us since 1970; nothing flows back
--   CALLS:  none; a sorted set of ids of calls by deadline; what has run out does not count
-- Then, a double for each limit, what of an amount stays charged if nobody settles (-1: all of it, else so much for each
-- token of the prompt).
-- A bucket is three doubles: what was in use, when, and from when on it is the same as none. It may hold more than the
-- capacity (debt). Amounts are integers (micro-units), exact below 2^53.
-- A lease is what a call asked for and its terms: MessagePack as above, behind a list of the number of dimensions, lease
-- us, grace us, the prompt's tokens, and by dimension what was taken, what strict limits were asked for (their places are
-- in this list) and, once it was extended, what was taken beside. `held` has it under the call's id, `leases` its
-- deadline. CLOSED stands before a lease that ran out; a call that was settled without anybody knowing whether it was
-- reserved leaves SETTLED in its place.
--
-- What a script costs is the tables and functions that it makes: hence numbers straight into locals, and few of both.

local call, encode, decode, floor, ceil, max = redis.call, struct.pack, struct.unpack, math.floor, math.ceil, math.max
local buckets, leases, held, stale = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLOTS = 6 -- keys before those of slots
local BUCKET, ROW, FIRST_ROW, ROW_BYTES = '<ddd', '<BBHddd', 17, 28
local RATE, QUOTA, CALLS = 0, 1, 2
local SHADOW, TOLD_OF = 0, 2
local ASKED = 4 -- numbers of a lease before its lists
local CLOSED, SETTLED = '\195', '' -- "true" in MessagePack; no lease begins with it
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- The terms as they were sent, or '' for those that this server was told before. It may have forgotten them: whoever
-- hears that sends them again. Nothing may have been written yet.
local function told(terms)
  local TTL_MS = 600000 -- gateways send them again in half that time
  if terms == '' then return call('GET', KEYS[6]) or error('UNTOLD') end
  call('SET', KEYS[6], terms, 'PX', TTL_MS)
  return terms
end

-- A bucket as it is now, when that was so, and when it may go, 0 if it is new. Where nothing is stored nothing is in use,
-- unless a gateway of the version before, whose buckets were text, left something; what it adds later is not seen.
local function bucket(stored, name, kind, back, in_us)
  local used, at, gone
  if stored then
    used, at, gone = decode(BUCKET, stored)
  else
    used, at = string.match(call('HGET', KEYS[5], name) or '', '^(%d+) (%d+)')
    used, at, gone = tonumber(used or 0), tonumber(at or now_us), 0
  end
  if kind == RATE then
    -- What a clock that went back would give is nothing, not a charge.
    local leaked = now_us > at and floor((now_us - at) * back / in_us) or 0
    if leaked > 0 then used, at = max(0, used - leaked), now_us end
    if used == 0 then at = max(at, now_us) end
  end
  return used, at, gone
end

-- When a bucket may go: not before all of it has gone by itself, and `later_us` have passed; and when it will, with room,
-- so that this is seldom said anew.
local function going_us(kind, used, one, two, later_us)
  local needed = later_us + (kind == QUOTA and two or now_us + ceil(used / one * two))
  return needed, needed + floor((needed - now_us) / 4)
end

-- Keys may go once everything in them has. Set with room, so that most calls find enough left.
local function live(keys, ttl_us)
  local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
  local ttl_ms = math.min(LONGEST_TTL_MS, ceil(ttl_us / 1000) + 1)
  for _, key in ipairs(keys) do
    if call('PTTL', key) < ttl_ms then call('PEXPIRE', key, 2 * ttl_ms) end
  end
end

-- The keys of leases last as long as the buckets from which they took. Something stays in them while no call runs:
-- they would go, and come back without an end.
local function lasting(until_us)
  call('ZADD', leases, '+inf', '')
  call('HSET', held, '', SETTLED)
  live({buckets, leases, held, stale}, until_us - now_us)
end

-- Writes buckets, a list of names and values. Those of `made` (when each may go, and its name) are new: they are put down
-- to be looked at when they will be empty, and give the occasion to look at some that are due. `until_us`: till when
-- one of them has to stay longer than it was to, 0 if none.
local function write(written, made, until_us)
  if #written > 0 then call('HSET', buckets, unpack(written)) end
  if #made > 0 then
    call('ZADD', stale, unpack(made))
    for _, name in ipairs(call('ZRANGEBYSCORE', stale, '-inf', now_us, 'LIMIT', 0, 16)) do
      local stored, due = call('HGET', buckets, name), 0
      if stored then due = select(3, decode(BUCKET, stored)) end
      if due > now_us then
        call('ZADD', stale, due, name)
      else
        call('HDEL', buckets, name)
        call('ZREM', stale, name)
      end
    end
  end
  if until_us > 0 then lasting(until_us) end
end
