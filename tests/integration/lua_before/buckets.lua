-- What all scripts know of limits and of what is in use of them; it stands before each of them.
--
-- KEYS: buckets, leases, stale, terms, then the slots of every limit of calls at once (one hash tag)
--
-- The terms are MessagePack, eleven lists of what is said of each limit: its bucket, kind, capacity, two numbers,
-- whether it refuses, whether it is strict, micro-units in a unit, the place of its dimension in lists of a call's
-- amounts (whole units), whether callers are told how the tightest limit of this dimension stands, and what of an amount
-- stays charged if nobody settles (0: nothing, 1: all of it, 1 + p: the prompt, of which each token counts for p units).
--   r (rate):   the numbers are what flows back and in how many us
--   q (quota):  the numbers are when its window begins and ends, us since 1970; nothing flows back
--   c (calls):  a sorted set of lease ids by deadline; what has run out does not count
-- A bucket is "used at_us gone_us": what was in use when, and from when on it is the same as none. It may hold more than
-- the capacity (debt). Amounts are integers (micro-units), exact below 2^53.
-- A lease is "id;bucket amount kept;bucket amount kept;..." for every limit but those of calls: what was taken, and
-- what stays charged if nobody settles.

local call, format, match, floor, ceil, max, min =
  redis.call, string.format, string.match, math.floor, math.ceil, math.max, math.min
local buckets, leases, stale, terms_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
local TERMS_TTL_MS = 600000 -- gateways send them again in half that time
local EXACT = 2 ^ 53 -- as a time, in 2255
local CLOSED, SETTLED = 'closed;', 'closed;settled;'
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- When a bucket is gone is read only where it is asked for: whoever puts something into it says it anew.
local function parsed(stored)
  if not stored then return {used = 0, at = now_us, fresh = true} end
  local used, at = match(stored, '^(%d+) (%d+)')
  return {used = tonumber(used or 0), at = tonumber(at or now_us), stored = stored}
end

local function gone_us(b)
  return b.gone or tonumber(match(b.stored or '', '^%d+ %d+ (%d+)')) or now_us
end

-- The terms as they were sent, or '' for those that this server was told before. It may have forgotten them: whoever
-- hears that sends them again. Nothing may have been written yet.
local function told(terms)
  if terms == '' then return call('GET', terms_key) or error('UNTOLD') end
  call('SET', terms_key, terms, 'PX', TERMS_TTL_MS)
  return terms
end

-- The limits, with the bucket of each as it is now, and the buckets by name; with a lease, also what it took of each.
local function limits_of(terms, lease)
  local l, known, slots = {}, {}, 4
  l.name, l.kind, l.capacity, l.one, l.two, l.refuses, l.strict, l.scale, l.place, l.shown, l.stays =
    unpack(cmsgpack.unpack(terms))
  l.count, l.key, l.amount, l.kept, l.bucket = #l.name, {}, {}, {}, {}
  local taken = lease and string.gmatch(lease, ';%S+ (%d+) (%d+)')
  local stored = l.count > 0 and call('HMGET', buckets, unpack(l.name)) or {}
  for n = 1, l.count do
    if l.kind[n] == 'c' then
      slots = slots + 1
      l.key[n] = KEYS[slots]
    else
      if taken then
        local amount, kept = taken()
        l.amount[n], l.kept[n] = tonumber(amount), tonumber(kept)
      end
      local name = l.name[n]
      local b = known[name] or parsed(stored[n])
      known[name], l.bucket[n] = b, b
      if l.kind[n] == 'r' then
        -- What a clock that went back would give is nothing, not a charge.
        local leaked = floor(max(0, now_us - b.at) * l.one[n] / l.two[n])
        if leaked > 0 then b.used, b.at = max(0, b.used - leaked), now_us end
        if b.used == 0 then b.at = max(b.at, now_us) end
      end
    end
  end
  return l, known
end

-- Whether a quota's window is not the one that is open now.
local function misdated(l)
  for n = 1, l.count do
    if l.kind[n] == 'q' and (now_us < l.one[n] or now_us >= l.two[n]) then return true end
  end
  return false
end

-- Puts what is in use into a limit's bucket. When all of it will have gone by itself, and `later` us have passed, the
-- bucket itself may go; gives that time.
local function put(l, n, used, later)
  local b = l.bucket[n]
  b.used, b.changed = used, true
  b.gone = min(EXACT, later + (l.kind[n] == 'q' and l.two[n] or now_us + ceil(used / l.one[n] * l.two[n])))
  return b.gone
end

-- Buckets that were changed; a new one is put down to be looked at when it will be empty, and each new one gives the
-- occasion to look at some that are due.
local function write(known)
  local written, made, count = {}, {}, 0
  for name, b in pairs(known) do
    if b.changed then
      local gone = gone_us(b)
      local shape = b.used < EXACT and '%d %d %d' or '%.0f %d %d'
      written[count + 1], written[count + 2] = name, format(shape, b.used, b.at, gone)
      count = count + 2
      if b.fresh then
        made[#made + 1] = format('%d', gone)
        made[#made + 1] = name
      end
    end
  end
  if count > 0 then call('HSET', buckets, unpack(written)) end
  if #made == 0 then return end
  call('ZADD', stale, unpack(made))
  for _, name in ipairs(call('ZRANGEBYSCORE', stale, '-inf', now_us, 'LIMIT', 0, 16)) do
    local due = gone_us(parsed(call('HGET', buckets, name)))
    if due > now_us then
      call('ZADD', stale, format('%d', due), name)
    else
      call('HDEL', buckets, name)
      call('ZREM', stale, name)
    end
  end
end

-- Keys may go once everything in them has. Set with room, so that most calls find enough left.
local function live(keys, ttl_us)
  local ttl_ms = min(LONGEST_TTL_MS, ceil(ttl_us / 1000) + 1)
  for _, key in ipairs(keys) do
    if call('PTTL', key) < ttl_ms then call('PEXPIRE', key, 2 * ttl_ms) end
  end
end

-- By bucket: what calls that run have reserved; and what flows back of leases that have run out, once the next
-- reservation closes them.
local function outstanding()
  local running, back = {}, {}
  for _, lease in ipairs(call('ZRANGEBYSCORE', leases, format('(%.0f', now_us), '+inf')) do
    if string.sub(lease, 1, #CLOSED) ~= CLOSED then
      for name, amount in string.gmatch(lease, ';(%S+) (%d+) %d+') do
        running[name] = (running[name] or 0) + tonumber(amount)
      end
    end
  end
  for _, lease in ipairs(call('ZRANGEBYSCORE', leases, '-inf', now_us)) do
    if string.sub(lease, 1, #CLOSED) ~= CLOSED then
      local late = call('ZSCORE', leases, SETTLED .. match(lease, '^[^;]+'))
      for name, amount, kept in string.gmatch(lease, ';(%S+) (%d+) (%d+)') do
        back[name] = (back[name] or 0) + tonumber(amount) - (late and 0 or tonumber(kept))
      end
    end
  end
  return running, back
end
