-- Replaces what was reserved by what was used. The second settling of a lease does nothing.
--
-- KEYS: buckets, leases (one tenant's, one hash tag)
-- ARGV: lease as it was reserved, 1 if it never was (the store was away then), then for each limit: bucket, refill,
--       refill period us, amount reserved, part of it kept when the lease was closed, amount used

local buckets, leases = KEYS[1], KEYS[2]
local lease, unreserved = ARGV[1], ARGV[2] == '1'
local HEAD, WIDTH = 2, 6
local LONGEST_TTL_MS = 1e12
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local RESERVED, KEPT = 4, 5
local charged = RESERVED
if unreserved then
  charged = nil
elseif redis.call('ZREM', leases, lease) == 0 then
  if redis.call('ZREM', leases, 'closed;' .. lease) == 0 then return 0 end
  charged = KEPT
end

local names = {}
for at = HEAD + 1, #ARGV, WIDTH do names[#names + 1] = ARGV[at] end
local stored = redis.call('HMGET', buckets, unpack(names))
local known, written, drain_us = {}, {}, 0
for number, name in ipairs(names) do
  local at = HEAD + (number - 1) * WIDTH
  local refill, period_us = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local used, since = string.match(known[name] or stored[number] or '', '^(%d+) (%d+)$')
  used, since = tonumber(used or 0), tonumber(since or now_us)
  local leaked = math.floor(math.max(0, now_us - since) * refill / period_us)
  if leaked > 0 then used, since = math.max(0, used - leaked), now_us end
  if used == 0 then since = math.max(since, now_us) end
  used = math.max(0, used + tonumber(ARGV[at + 6]) - (charged and tonumber(ARGV[at + charged]) or 0))
  known[name] = string.format('%.0f %.0f', used, since)
  written[#written + 1] = name
  written[#written + 1] = known[name]
  drain_us = math.max(drain_us, used / refill * period_us)
end
redis.call('HSET', buckets, unpack(written))
local ttl_ms = math.min(LONGEST_TTL_MS, math.ceil(drain_us / 1000) + 1)
if redis.call('PTTL', buckets) < ttl_ms then redis.call('PEXPIRE', buckets, 2 * ttl_ms) end
return 1
