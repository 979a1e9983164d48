-- What scripts do with leases that were taken before; it stands behind what they know of limits.

-- A lease taken apart: what was asked, the three parts of its terms, whether it is closed. Nothing of a mark.
local function opened(lease)
  if not lease or lease == SETTLED then return nil end
  local closed = string.sub(lease, 1, 1) == CLOSED
  local asked, fields, layouts, rows = cmsgpack.unpack(closed and string.sub(lease, 2) or lease)
  return asked, fields, layouts, rows, closed
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
local function replace(asked, fields, layouts, rows, closed, used_by, first, grace_us, id)
  local dimensions, count = asked and asked[1] or #used_by - first, layouts[#layouts]
  local stored, written, until_us, slots, n, next_row = call('HMGET', buckets, unpack(fields)), {}, 0, 0, 0, FIRST_ROW
  local kind, does, place, capacity, one, two
  for b = 1, #fields do
    local head = layouts[3 * b - 2]
    local board, k = arranged(fields[b], stored[b], head, layouts[3 * b - 1], written), 1
    local numbers, format = numbers_of(board, head)
    while n < layouts[3 * b] do
      n = n + 1
      kind, does, place, capacity, one, two, next_row = decode(ROW, rows, next_row)
      if kind == CALLS then
        slots = slots + 1
        if id then call('ZREM', KEYS[SLOTS + slots], id) end
      else
        local used, at, after = numbers[k], numbers[k + 1], nil
        if kind == RATE then used, at = flowed(used, at, one, two) end
        local rest = used
        if asked then rest = used - (closed and kept(asked, place, rows, count, n) or took(asked, place)) end
        if not used_by then
          after = rest + kept(asked, place, rows, count, n)
        elseif place <= dimensions then
          after = rest + used_by[first + place]
        else
          after = max(rest, math.min(rest + used_by[first + place - dimensions], capacity))
        end
        if after < 0 then after = 0 end
        -- Whatever took from the bucket saw to it that it stays until all of that is settled.
        if after > used then
          local needed = grace_us + (kind == QUOTA and two or now_us + after / one * two)
          if needed > numbers[k + 2] then
            numbers[k + 2] = floor(needed + (needed - now_us) / 4)
            until_us = max(until_us, numbers[k + 2])
          end
        end
        numbers[k], numbers[k + 1] = after, at
        k = k + 3
      end
    end
    if k > 1 and (stored[b] or until_us > 0) then put(written, fields[b], head, numbers, format) end
  end
  write(written, until_us)
end
