-- Replaces what was reserved by what was used. The second settling of a reservation does nothing.
--
-- KEYS: buckets, reservations, leases (one tenant's, one hash tag)
-- ARGV: reservation id, 1 if there was no reservation (the store was away when it should have been made),
--       then for each limit: bucket, refill, refill period us, amount used

local buckets, reservations, leases = KEYS[1], KEYS[2], KEYS[3]
local id, unreserved = ARGV[1], ARGV[2] == '1'
local HEAD, WIDTH = 2, 4
local LONGEST_TTL_MS = 1e12 -- 30 years; what the server takes has an end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local packed = redis.call('HGET', reservations, id)
if not packed and not unreserved then return {0, {}} end
local reserved = {}
if packed then
  for _, item in ipairs(cmsgpack.unpack(packed).items) do
    reserved[item[1]] = (reserved[item[1]] or 0) + item[2]
  end
end

local state = {}
for at = HEAD + 1, #ARGV, WIDTH do
  local name, refill, period_us = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local stored = redis.call('HGET', buckets, name)
  local used, since = string.match(stored or '', '^(%d+) (%d+)$')
  used, since = tonumber(used or 0), tonumber(since or now_us)
  local leaked = math.floor(math.max(0, now_us - since) * refill / period_us)
  if leaked > 0 then used, since = math.max(0, used - leaked), now_us end
  if used == 0 then since = math.max(since, now_us) end
  used = math.max(0, used + tonumber(ARGV[at + 3]) - (reserved[name] or 0))
  reserved[name] = 0
  redis.call('HSET', buckets, name, string.format('%.0f %.0f', used, since))
  local ttl_ms = math.min(LONGEST_TTL_MS, math.ceil(used / refill * period_us / 1000) + 1)
  redis.call('PEXPIRE', buckets, math.max(ttl_ms, redis.call('PTTL', buckets)))
  state[#state + 1] = used
end
redis.call('HDEL', reservations, id)
redis.call('ZREM', leases, id)
return {1, state}
