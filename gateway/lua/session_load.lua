-- Which branch of a session does a conversation continue? Reads only.
--
-- KEYS: the session, the tenant's live sessions
-- ARGV: session id, how many messages the conversation has, the cumulative digests (16 bytes each) of the last of them
--
-- Digests are cumulative: two conversations that agree on the n-th agree on all before it. So one comparison tells
-- whether a branch is a prefix, and a binary search finds where two part. The last few digests are enough for a
-- conversation that goes on; where they show nothing, all of them are asked for ('part').

local DIGEST, RECORD, CHUNK = 16, 21, 32
local FIRST, MOST = 8, 32 -- branches that are asked for at once, and that there can be
local count, links = tonumber(ARGV[2]), ARGV[3]
local before = count - #links / DIGEST
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function link(n) return string.sub(links, (n - before - 1) * DIGEST + 1, (n - before) * DIGEST) end

local function stored(branch, n)
  local chunk = redis.call('HGET', KEYS[1], 'c' .. branch .. '.' .. math.floor((n - 1) / CHUNK)) or ''
  local at = (n - 1) % CHUNK * RECORD
  return string.sub(chunk, at + 1, at + DIGEST)
end

-- How many messages this conversation and a branch have in common, as far as can be told from what was sent; 0 if it
-- is no more than `least`.
local function shared(branch, m, least)
  if m[1] > before and m[1] <= count and m[2] == link(m[1]) then return m[1] end
  local low, high = before, math.min(count, m[1])
  if least > low then
    if high <= least or stored(branch, least + 1) ~= link(least + 1) then return 0 end
    low = least + 1
  end
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if stored(branch, middle) == link(middle) then low = middle else high = middle - 1 end
  end
  return low > before and low or 0
end

-- A session that was evicted is gone although its record may still wait for its expiry.
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'new', now_ms} end

local packed = redis.call('HMGET', KEYS[1], 'm0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7')
if packed[FIRST] then -- the lowest number that is free is taken first
  local more = {}
  for b = FIRST, MOST - 1 do more[#more + 1] = 'm' .. b end
  for at, value in ipairs(redis.call('HMGET', KEYS[1], unpack(more))) do packed[FIRST + at] = value end
end
local metas, branch, known, ended, ends = {}, nil, 0, nil, 0

for b = 0, #packed - 1 do
  if packed[b + 1] then
    local m = cmsgpack.unpack(packed[b + 1])
    local n = shared(b, m, known)
    metas[b] = m
    if n > known then branch, known = b, n end
    if n == m[1] and n > ends then ended, ends = b, n end
  end
end

-- Who goes the way of a longer branch again has one of its own, which ends where it was left.
if ended and (known == count or known == ends) then branch, known = ended, ends end
if not branch then return {next(metas) and before > 0 and 'part' or 'new', now_ms} end
local meta = metas[branch]
local status = known == meta[1] and 'known' or 'fork'
local remembered = meta[11] or 0
return {
  status, now_ms, branch, known, meta[3], meta[4], meta[5], meta[6], meta[7], meta[8], meta[9], remembered, meta[10],
  remembered > 0 and redis.call('HGET', KEYS[1], 'e' .. branch) or '',
}
