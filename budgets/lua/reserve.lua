-- Reserves on every limit that bounds a call, or on none.
--
-- ARGV: terms; the call's id; what it asks for, as a lease has it
-- Gives: the number of the limit that refused (0: none; -1: a quota's window is not the one that is open now), how long
-- until it would pass, the time; MessagePack of what is in use of each limit; the number of the tightest limit of each
-- dimension that is told, and what is in use of it; how full the fullest limit was without this call, in millionths;
-- the numbers of limits in shadow that would have refused, and of those that are nearly full.

local terms, id = told(ARGV[1]), ARGV[2]
local fields, layouts, rows = cmsgpack.unpack(terms)
local since_us, until_us = decode('<dd', rows)
if now_us < since_us or now_us >= until_us then return {-1, 0, now_us} end
local asked = cmsgpack.unpack(ARGV[3])
local dimensions, lease_us, grace_us = asked[1], asked[2], asked[3]
local NEVER_US, SLOT_WAIT_US, NEARLY = 1e18, 1000000, 0.8

-- Leases that ran out: their holder died or is very late. The prompt stays charged, the rest flows back. A closed
-- lease is kept for the grace time, so that a late settling still charges the truth.
for _, expired in ipairs(call('ZRANGEBYSCORE', leases, '-inf', now_us, 'LIMIT', 0, 512)) do
  local lease = call('HGET', held, expired)
  local before, boards, arrangements, numbers, closed = opened(lease)
  if before and not closed then
    replace(before, boards, arrangements, numbers, false, nil, 0, grace_us)
    call('HSET', held, expired, CLOSED .. lease)
    call('ZADD', leases, now_us + grace_us, expired)
  else
    call('HDEL', held, expired)
    call('ZREM', leases, expired)
  end
end

local refused, longest, fullest, last_us, slots, in_use, written, shadowed, near, least, tightest
local later_us, taking, again = lease_us + grace_us, true, false

-- How all limits stand once this call has taken its part; if one refuses, once more how they stand without it. (No
-- function: what it would have to know of what is here makes one dearer than a limit.)
repeat
  refused, longest, fullest, last_us, slots = 0, 0, 0, 0, 0
  in_use, written, shadowed, near, least, tightest = {}, {}, {}, {}, {}, {}
  local stored, n, next_row = call('HMGET', buckets, unpack(fields)), 0, FIRST_ROW
  local kind, does, place, capacity, one, two
  for b = 1, #fields do
    local head = layouts[3 * b - 2]
    local board, k = arranged(fields[b], stored[b], head, layouts[3 * b - 1], written), 1
    local numbers, format = numbers_of(board, head)
    while n < layouts[3 * b] do
      n = n + 1
      kind, does, place, capacity, one, two, next_row = decode(ROW, rows, next_row)
      local amount, wait, used, at = 1, 0, nil, nil
      if kind == CALLS then
        slots = slots + 1
        call('ZREMRANGEBYSCORE', KEYS[SLOTS + slots], '-inf', now_us)
        used = call('ZCARD', KEYS[SLOTS + slots])
        if used >= capacity then wait = SLOT_WAIT_US end
      else
        amount, used, at = asked[ASKED + place], numbers[k], numbers[k + 1]
        if kind == RATE then used, at = flowed(used, at, one, two) end
        -- A call that is larger than the whole bucket passes when the bucket is full: it would never pass otherwise. Only
        -- what is strict refuses it for good. A call that takes nothing needs a micro-unit of room.
        local room = capacity - (amount > 1 and amount or 1)
        if amount > capacity and place > dimensions then
          wait = NEVER_US
        elseif used > room and used > 0 then
          local excess = used - max(0, room)
          wait = kind == QUOTA and two - now_us or math.ceil(excess * two / one)
        end
        -- The bucket may go when all of it has gone by itself, and the call can no longer be settled. Said with room, so
        -- that it is seldom said anew.
        local needed = later_us + (kind == QUOTA and two or now_us + (used + amount) / one * two)
        if needed > numbers[k + 2] then
          numbers[k + 2] = floor(needed + (needed - now_us) / 4)
          last_us = max(last_us, numbers[k + 2])
        end
        numbers[k], numbers[k + 1] = used + amount, at
        k = k + 3
      end
      local share = used / capacity
      if taking then used = used + amount end
      in_use[n] = used
      if used > capacity * NEARLY then near[#near + 1] = n end
      if does == SHADOW then
        if wait > 0 then shadowed[#shadowed + 1] = n end
      else
        if share > fullest then fullest = share end
        if wait > longest then refused, longest = n, wait end
        if does == TOLD_OF then
          local left = used < capacity and capacity - used or 0
          if left < (least[place] or math.huge) then least[place], tightest[place] = left, n end
        end
      end
    end
    if k > 1 then put(written, fields[b], head, numbers, format) end
  end
  again, taking = taking and refused > 0, false
until not again

if refused == 0 and call('HSETNX', held, id, ARGV[3] .. terms) == 1 then
  -- Else it has been settled: a reservation that comes late, out of a connection that was given up, takes nothing.
  call('ZADD', leases, now_us + lease_us, id)
  write(written, last_us)
  for slot = SLOTS + 1, SLOTS + slots do
    call('ZADD', KEYS[slot], now_us + lease_us, id)
    live({KEYS[slot]}, lease_us + grace_us)
  end
  -- Buckets would have seen to it.
  if #written == 0 and call('PTTL', leases) < (lease_us + grace_us) / 1000 then lasting(now_us + lease_us + grace_us) end
end

local told_of = {}
for _, n in pairs(tightest) do
  told_of[#told_of + 1] = n
  told_of[#told_of + 1] = math.min(in_use[n], 9e18) -- an integer of a reply ends at 64 bits
end
return {refused, longest, now_us, cmsgpack.pack(in_use), told_of, math.min(1e15, floor(fullest * 1e6)), shadowed, near}
