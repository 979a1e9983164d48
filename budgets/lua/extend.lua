-- Takes more for a call that runs, from every elastic limit or from none, and renews its lease either way.
--
-- ARGV: the call's id; MessagePack of lease us, grace us, and how much more is taken, by dimension
-- Gives: the numbers of the limits that refused, none if it was taken; -1 alone if the lease is no longer there.

local id, more, FIRST_MORE = ARGV[1], cmsgpack.unpack(ARGV[2]), 2
local asked, names, rows, closed = opened(call('HGET', held, id))
if not asked or closed then return {-1} end
local dimensions, lease_us, grace_us = asked[1], more[1], more[2]

local stored = call('HMGET', buckets, unpack(names))
local refused, written, made, until_us, slots, next_row = {}, {}, {}, 0, 0, FIRST_ROW
local kind, does, place, capacity, one, two
for n = 1, #names do
  kind, does, place, capacity, one, two, next_row = decode(ROW, rows, next_row)
  if kind == CALLS then
    slots = slots + 1
    call('ZADD', KEYS[SLOTS + slots], 'XX', now_us + lease_us, id)
    live({KEYS[SLOTS + slots]}, lease_us + grace_us)
  elseif place <= dimensions and more[FIRST_MORE + place] > 0 then
    local used, at, gone = bucket(stored[n], names[n], kind, one, two)
    used = used + more[FIRST_MORE + place]
    if does ~= SHADOW and used > capacity then refused[#refused + 1] = n end
    local needed, room = going_us(kind, used, one, two, lease_us + grace_us)
    if needed > gone then
      if gone == 0 then made[#made + 1], made[#made + 2] = room, names[n] end
      gone, until_us = room, max(until_us, room)
    end
    written[#written + 1] = names[n]
    written[#written + 1] = encode(BUCKET, used, at, gone)
  end
end

if #refused == 0 then
  for place = 1, dimensions do
    local at = ASKED + 2 * dimensions + place
    asked[at] = (asked[at] or 0) + more[FIRST_MORE + place]
  end
  call('HSET', held, id, cmsgpack.pack(asked, names, rows))
  write(written, made, until_us)
end
call('ZADD', leases, now_us + lease_us, id)
lasting(now_us + lease_us + grace_us)
return refused
