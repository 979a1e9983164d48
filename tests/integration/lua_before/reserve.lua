-- Reserves on every limit that bounds a call, or on none.
--
-- KEYS: last comes the call's own, where its lease is found when it is extended or settled
-- ARGV: terms; MessagePack of the call's id, lease us, grace us, the prompt's tokens, and two lists by dimension: what is
--       taken, and what strict limits are asked for
-- Gives: the number of the limit that refused (0: none; -1: a quota's window is not the one that is open now), how long
-- until it would pass, the time; MessagePack of what is in use of each limit; the number of the tightest limit of each
-- dimension that is told, and what is in use of it; how full the fullest limit was without this call, in millionths;
-- the numbers of limits in shadow that would have refused, and of those that are nearly full.

local held = KEYS[#KEYS]
local l, known = limits_of(told(ARGV[1]))
if misdated(l) then return {-1, 0, now_us} end
local id, lease_us, grace_us, prompt, taken, most = unpack(cmsgpack.unpack(ARGV[2]))
local NEVER_US, SLOT_WAIT_US, NEARLY = 1e18, 1000000, 0.8

-- Leases that ran out: their holder died or is very late. The prompt stays charged, the rest flows back. A closed
-- lease is kept for the grace time, so that a late settling still charges the truth.
for _, expired in ipairs(call('ZRANGEBYSCORE', leases, '-inf', now_us, 'LIMIT', 0, 512)) do
  call('ZREM', leases, expired)
  if string.sub(expired, 1, #CLOSED) ~= CLOSED then
    -- A reservation that came after its own settling, out of a connection that was given up: none of it stays.
    local late = call('ZSCORE', leases, SETTLED .. match(expired, '^[^;]+'))
    for name, amount, kept in string.gmatch(expired, ';(%S+) (%d+) (%d+)') do
      if late then kept = 0 end
      known[name] = known[name] or parsed(call('HGET', buckets, name))
      local b = known[name]
      if not b.fresh then
        b.used, b.changed = max(0, b.used - (tonumber(amount) - tonumber(kept))), true
      end
    end
    call('ZADD', leases, now_us + grace_us, CLOSED .. expired)
  end
end

-- How long a call would wait for one limit, and what is in use of that. A call that is larger than the whole bucket
-- passes when the bucket is full: it would never pass otherwise. Only what is strict refuses it for good.
local function wait_us(n, amount)
  if l.kind[n] == 'c' then
    call('ZREMRANGEBYSCORE', l.key[n], '-inf', now_us)
    local count = call('ZCARD', l.key[n])
    return count < l.capacity[n] and 0 or SLOT_WAIT_US, count
  end
  local used, capacity = l.bucket[n].used, l.capacity[n]
  if l.strict[n] and amount > capacity then return NEVER_US, used end
  local excess = used - max(0, capacity - max(1, amount))
  if excess <= 0 then return 0, used end
  return l.kind[n] == 'q' and l.two[n] - now_us or ceil(excess * l.two[n] / l.one[n]), used
end

local refused, longest, fullest, shadowed, in_use = 0, 0, 0, {}, {}
for n = 1, l.count do
  local amount = l.kind[n] ~= 'c' and (l.strict[n] and most or taken)[l.place[n]] * l.scale[n]
  local wait, used = wait_us(n, amount)
  l.amount[n], in_use[n] = amount, used
  if l.refuses[n] then fullest = max(fullest, used / l.capacity[n]) end
  if wait > 0 and not l.refuses[n] then
    shadowed[#shadowed + 1] = n
  elseif wait > longest then
    refused, longest = n, wait
  end
end

local last_us, lasting, lease = now_us + lease_us + grace_us, {buckets, leases, stale}, {id}
if refused == 0 then
  local deadline_us = now_us + lease_us
  for n = 1, l.count do
    local amount = l.amount[n]
    if amount then
      in_use[n] = in_use[n] + amount
      last_us = max(last_us, put(l, n, l.bucket[n].used + amount, lease_us + grace_us))
      local stays, kept = l.stays[n], amount
      if l.strict[n] then
        kept = amount
      elseif stays ~= 1 then
        kept = stays == 0 and 0 or min(amount, prompt * (stays - 1) * l.scale[n])
      end
      lease[#lease + 1] = format(amount < EXACT and '%s %d %d' or '%s %.0f %.0f', l.name[n], amount, kept)
    else
      in_use[n] = in_use[n] + 1
      call('ZADD', l.key[n], deadline_us, id)
      lasting[#lasting + 1] = l.key[n]
    end
  end
  lease = table.concat(lease, ';')
  call('ZADD', leases, deadline_us, lease)
  call('SET', held, lease, 'PX', ceil((lease_us + grace_us) / 1000))
end
write(known)
if refused == 0 then live(lasting, last_us - now_us) end

local near, least, tightest, shown = {}, {}, {}, {}
for n = 1, l.count do
  local used, capacity = in_use[n], l.capacity[n]
  if used > capacity * NEARLY then near[#near + 1] = n end
  if l.shown[n] and l.refuses[n] then
    local left, place = max(0, floor((capacity - used) / l.scale[n])), l.place[n]
    if left < (least[place] or math.huge) then least[place], tightest[place] = left, n end
  end
end
for _, n in pairs(tightest) do
  shown[#shown + 1] = n
  shown[#shown + 1] = min(in_use[n], 9e18) -- an integer of a reply ends at 64 bits
end
return {refused, longest, now_us, cmsgpack.pack(in_use), shown, min(1e15, floor(fullest * 1e6)), shadowed, near}
