-- Takes more for a call that runs, from every elastic limit or from none, and renews its lease either way.
--
-- ARGV: the call's id; MessagePack of lease us, grace us, and how much more is taken, by dimension
-- Gives: the numbers of the limits that refused, none if it was taken; -1 alone if the lease is no longer there.

local id, more, FIRST_MORE = ARGV[1], cmsgpack.unpack(ARGV[2]), 2
local asked, fields, layouts, rows, closed = opened(call('HGET', held, id))
if not asked or closed then return {-1} end
local dimensions, lease_us, grace_us = asked[1], more[1], more[2]

local stored, refused, written, until_us = call('HMGET', buckets, unpack(fields)), {}, {}, 0
local slots, n, next_row = 0, 0, FIRST_ROW
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
      call('ZADD', KEYS[SLOTS + slots], 'XX', now_us + lease_us, id)
      live({KEYS[SLOTS + slots]}, lease_us + grace_us)
    else
      local amount = place <= dimensions and more[FIRST_MORE + place] or 0
      if amount > 0 then
        local used, at = numbers[k], numbers[k + 1]
        if kind == RATE then used, at = flowed(used, at, one, two) end
        used = used + amount
        if does ~= SHADOW and used > capacity then refused[#refused + 1] = n end
        local needed = lease_us + grace_us + (kind == QUOTA and two or now_us + used / one * two)
        if needed > numbers[k + 2] then
          numbers[k + 2] = floor(needed + (needed - now_us) / 4)
          until_us = max(until_us, numbers[k + 2])
        end
        numbers[k], numbers[k + 1] = used, at
      end
      k = k + 3
    end
  end
  if k > 1 and (stored[b] or until_us > 0) then put(written, fields[b], head, numbers, format) end
end

if #refused == 0 then
  for place = 1, dimensions do
    local extended = ASKED + 2 * dimensions + place
    asked[extended] = (asked[extended] or 0) + more[FIRST_MORE + place]
  end
  call('HSET', held, id, cmsgpack.pack(asked, fields, layouts, rows))
  write(written, until_us)
end
call('ZADD', leases, now_us + lease_us, id)
lasting(now_us + lease_us + grace_us)
return refused
