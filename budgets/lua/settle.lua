-- Replaces what was reserved by what was used, in the windows it was taken from. The second settling of a lease does
-- nothing.
--
-- KEYS: of what never was reserved, behind the slots, the marks; with records, their stream is the last
-- ARGV: terms; the call's id; MessagePack of 0 if it was reserved, 1 if nobody knows (the answer never came), 2 if it
--       never was and has no limits, grace us, and the amounts used by dimension; for records how many to keep, and the
--       records
-- Gives: 1, or 0 if it was settled already.

local KEEP, RECORD, RECORD_TTL_US = 4, 5, 400 * 86400 * 1000000
local id, used = ARGV[2], cmsgpack.unpack(ARGV[3])
local made, grace_us, FIRST_USED = used[1], used[2], 2
local stream = ARGV[RECORD] and KEYS[#KEYS]

if made == 2 then
  -- No lease tells of what never was reserved. The newest marks are kept: it is sent again soon, or hardly ever.
  local marks, KEPT_MARKS = KEYS[stream and #KEYS - 1 or #KEYS], 16384
  if call('ZADD', marks, 'NX', now_us, id) == 0 then return 0 end
  call('ZREMRANGEBYRANK', marks, 0, -1 - KEPT_MARKS)
  live({marks}, grace_us)
else
  local lease = call('HGET', held, id)
  if lease == SETTLED or not lease and made == 0 then return 0 end
  local asked, fields, layouts, rows, closed = opened(lease)
  if not asked then fields, layouts, rows = cmsgpack.unpack(told(ARGV[1])) end
  replace(asked, fields, layouts, rows, closed, used, FIRST_USED, grace_us, id)
  if made == 0 then
    call('HDEL', held, id)
    call('ZREM', leases, id)
  else
    -- What nobody knows of leaves a mark, so that settling it again finds that it has been, lease or no lease.
    call('HSET', held, id, SETTLED)
    call('ZADD', leases, now_us + grace_us, id)
    lasting(now_us + grace_us)
  end
end

if stream then
  for number = RECORD, #ARGV do
    call('XADD', stream, 'MAXLEN', '~', ARGV[KEEP], '*', 'r', ARGV[number])
  end
  live({stream}, RECORD_TTL_US)
end
return 1
