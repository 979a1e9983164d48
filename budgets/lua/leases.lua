-- What scripts do with leases that were taken before; it stands behind what they know of limits.

-- A lease taken apart: what was asked, the names and the rows of its terms, whether it is closed. Nothing of a mark.
local function opened(lease)
  if not lease or lease == SETTLED then return nil end
  local closed = string.sub(lease, 1, 1) == CLOSED
  local asked, names, rows = cmsgpack.unpack(closed and string.sub(lease, 2) or lease)
  return asked, names, rows, closed
end

-- What a call took of a limit with this place, and of how much it was extended.
local function took(asked, place)
  local more = asked[ASKED + 2 * asked[1] + place] or 0
  return asked[ASKED + place] + more, more
end

-- What of that stays charged if nobody settles; of `count` limits this is the n-th. What strict limits were asked for
-- is what their call can use at most.
local function kept(asked, place, rows, count, n)
  local amount, more = took(asked, place)
  local each = decode('<d', rows, FIRST_ROW + count * ROW_BYTES + 8 * (n - 1))
  if each < 0 or place > asked[1] then return amount end
  return math.min(amount - more, asked[4] * each) + more
end

-- Takes what a lease took (nil: nothing) out of its buckets, of one that is closed what stayed; and puts in what was used,
-- a list by dimension behind `first`, or what stays if nobody settles. Ends the call's slots if it is given `id`.
local function replace(asked, names, rows, closed, used_by, first, grace_us, id)
  local count = #names
  local dimensions = asked and asked[1] or #used_by - first
  local stored = call('HMGET', buckets, unpack(names))
  local written, made, last, until_us, slots, next_row = {}, {}, 0, 0, 0, FIRST_ROW
  local kind, does, place, capacity, one, two
  for n = 1, count do
    kind, does, place, capacity, one, two, next_row = decode(ROW, rows, next_row)
    if kind == CALLS then
      slots = slots + 1
      if id then call('ZREM', KEYS[SLOTS + slots], id) end
    else
      local used, at, gone = bucket(stored[n], names[n], kind, one, two)
      local reserved = asked and (closed and kept(asked, place, rows, count, n) or took(asked, place)) or 0
      local rest, after = max(0, used - reserved), nil
      if not used_by then
        after = max(0, used - reserved + kept(asked, place, rows, count, n))
      elseif place <= dimensions then
        after = max(0, used - reserved + used_by[first + place])
      else
        after = max(rest, math.min(used - reserved + used_by[first + place - dimensions], capacity))
      end
      -- Whatever took from the bucket saw to it that it stays until all of that is settled.
      if after > used or gone == 0 and after > 0 then
        local needed, room = going_us(kind, after, one, two, grace_us)
        if needed > gone then
          if gone == 0 then made[#made + 1], made[#made + 2] = room, names[n] end
          gone, until_us = room, max(until_us, room)
        end
      end
      if gone > 0 then
        written[last + 1], written[last + 2] = names[n], encode(BUCKET, after, at, gone)
        last = last + 2
      end
    end
  end
  write(written, made, until_us)
end
