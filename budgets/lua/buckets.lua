-- What all scripts know of limits and of what is in use of them; it stands before each of them.
--
-- KEYS: buckets, leases, held, stale, the buckets of the version before, terms, then the slots of every limit of calls at
--       once (one hash tag)
--
-- The terms are three values of MessagePack, one behind the other: a list of boards, by the name of their field; for each
-- board, in a list, its head, MessagePack of a list of the names of its buckets, and the number of the last limit on it; and
-- a string of numbers as `struct` packs them, little-endian. First in that, as doubles, from when till when (us since
-- 1970) these are the windows of quotas that are open; then a ROW for each limit: its kind, what it does (0: nothing, it is
-- in shadow; 1: it refuses; 2: and callers are told how the tightest such limit of its dimension stands), the place of
-- what it is asked for in the lists of a call's amounts, capacity, and two numbers:
--   RATE:   what flows back and in how many us
--   QUOTA:  when its window begins and ends, us since 1970; nothing flows back
--   CALLS:  none; a sorted set of ids of calls by deadline, and no bucket; what has run out does not count
-- Then, a double for each limit, what of an amount stays charged if nobody settles (-1: all of it, else so much for each
-- token of the prompt).
--
-- A bucket is three doubles: what was in use, when, and from when on it is the same as none. It may hold more than the
-- capacity (debt). Amounts are integers (micro-units), exact below 2^53. Those of one owner and model are a board, which is
-- read and written whole: its head (8 bytes, a digest of the names, and the number of buckets, 2), and the buckets. Behind
-- it, in the field of the same name with BEHIND before it, is what calls do not need: MessagePack of a list of their names,
-- and of a list of the names and values of others: of windows that are over, of limits that other gateways know. A board
-- with another head is arranged anew.
--
-- A lease is what a call asked for and its terms: MessagePack as above, behind a list of the number of dimensions, lease
-- us, grace us, the prompt's tokens, and by dimension what was taken, what strict limits were asked for (their places are
-- in this list) and, once it was extended, what was taken beside. `held` has it under the call's id, `leases` its
-- deadline. CLOSED stands before a lease that ran out; a call that was settled without anybody knowing whether it was
-- reserved leaves SETTLED in its place.
--
-- What a script costs is the tables, functions and strings that it makes: hence numbers straight into locals, and few of
-- all these.

local call, encode, decode, floor, max = redis.call, struct.pack, struct.unpack, math.floor, math.max
local buckets, leases, held, stale = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLOTS = 6 -- keys before those of slots
local BUCKET, BUCKET_BYTES, HEAD_BYTES, BEHIND = '<ddd', 24, 10, '='
local ROW, FIRST_ROW, ROW_BYTES = '<BBHddd', 17, 28
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

-- The buckets of a board, by name, as they are stored.
local function buckets_of(field, board)
  local found, behind = {}, board and call('HGET', buckets, BEHIND .. field)
  if not behind then return found end
  local names, others = cmsgpack.unpack(behind)
  for n, name in ipairs(names) do
    local last = HEAD_BYTES + BUCKET_BYTES * n
    found[name] = string.sub(board, last - BUCKET_BYTES + 1, last)
  end
  for n = 1, #others, 2 do found[others[n]] = others[n + 1] end
  return found
end

-- A board with its buckets in the order of the terms. Of what is new nothing is in use, unless a gateway of the version
-- before, whose buckets were text, left something; what it adds later is not seen. Whoever writes the board writes all that
-- this adds to `written`.
local function arranged(field, board, head, packed, written)
  if board and string.sub(board, 1, HEAD_BYTES) == head then return board end
  local found, names, parts, others = buckets_of(field, board), cmsgpack.unpack(packed), {head}, {}
  for n, name in ipairs(names) do
    local used, at = string.match(not found[name] and call('HGET', KEYS[5], name) or '', '^(%d+) (%d+)')
    parts[n + 1] = found[name] or encode(BUCKET, tonumber(used or 0), tonumber(at or now_us), 0)
    found[name] = nil
  end
  for name, bucket in pairs(found) do
    if select(3, decode(BUCKET, bucket)) > now_us then others[#others + 1], others[#others + 2] = name, bucket end
  end
  if #names > 0 then written[#written + 1], written[#written + 2] = BEHIND .. field, cmsgpack.pack(names, others) end
  return table.concat(parts)
end

-- The numbers of a board's buckets (and one more, where they end), and their format.
local function numbers_of(board, head)
  local format = '<' .. string.rep('ddd', decode('<H', head, HEAD_BYTES - 1))
  return {decode(format, board, HEAD_BYTES + 1)}, format
end

-- Puts a board with these numbers among what is written.
local function put(written, field, head, numbers, format)
  local last = #written
  written[last + 1], written[last + 2] = field, head .. encode(format, unpack(numbers))
end

-- What is in use of a rate by now, and when it was so. What a clock that went back would give is nothing, not a charge.
local function flowed(used, at, back, in_us)
  if now_us <= at then return used, at end
  local leaked = floor((now_us - at) * back / in_us)
  if leaked >= used then return 0, now_us end
  if leaked > 0 then return used - leaked, now_us end
  return used, at
end

-- Keys may go once everything in them has. Set with room, so that most calls find enough left.
local function live(keys, ttl_us)
  local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
  local ttl_ms = math.min(LONGEST_TTL_MS, floor(ttl_us / 1000) + 2)
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

-- Writes boards, a list of fields and values. If one of their buckets has to stay longer than it was to, till
-- `until_us` (0: none has), that is put down for new ones, to be looked at when they will be empty, and gives the
-- occasion to look at some that are due.
local function write(written, until_us)
  if #written > 0 then call('HSET', buckets, unpack(written)) end
  if until_us == 0 then return end
  for n = 1, #written, 2 do
    if string.sub(written[n], 1, 1) ~= BEHIND then call('ZADD', stale, 'NX', until_us, written[n]) end
  end
  for _, field in ipairs(call('ZRANGEBYSCORE', stale, '-inf', now_us, 'LIMIT', 0, 16)) do
    local due = 0
    for _, bucket in pairs(buckets_of(field, call('HGET', buckets, field))) do
      due = max(due, (select(3, decode(BUCKET, bucket))))
    end
    if due > now_us then
      call('ZADD', stale, due, field)
    else
      call('HDEL', buckets, field, BEHIND .. field)
      call('ZREM', stale, field)
    end
  end
  lasting(until_us)
end
