-- Which branch of a session does a conversation continue? Reads only.
--
-- KEYS: the session, the tenant's live sessions
-- ARGV: session id, the conversation's cumulative digests (16 bytes a message)
--
-- Digests are cumulative: two conversations that agree on the n-th agree on all before it. So one comparison tells
-- whether a branch is a prefix, and a binary search finds where two part.

local DIGEST, RECORD = 16, 21
local FIELDS = {'m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7'}
local incoming = ARGV[2]
local incoming_count = #incoming / DIGEST
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function link(chain, n) return string.sub(chain, (n - 1) * DIGEST + 1, n * DIGEST) end

local function shared(chain)
  local low, high = 0, math.min(incoming_count, #chain / RECORD)
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if link(chain, middle) == link(incoming, middle) then low = middle else high = middle - 1 end
  end
  return low
end

-- A session that was evicted is gone although its record may still wait for its expiry.
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'new', now_ms} end

local packed = redis.call('HMGET', KEYS[1], unpack(FIELDS))
local status, branch, known, meta = 'new', nil, 0, nil

for b = 1, #FIELDS do
  if packed[b] then
    local m = cmsgpack.unpack(packed[b])
    if m[1] <= incoming_count and m[2] == link(incoming, m[1]) then
      status, branch, known, meta = 'known', b - 1, m[1], m
    end
  end
end

if not branch then
  for b = 1, #FIELDS do
    if packed[b] then
      local common = shared(redis.call('HGET', KEYS[1], 'c' .. b - 1) or '')
      if common > known then status, branch, known, meta = 'fork', b - 1, common, cmsgpack.unpack(packed[b]) end
    end
  end
end

if not branch then return {'new', now_ms} end
return {
  status, now_ms, branch, known, meta[3], meta[4], meta[5], meta[6], meta[7], meta[8], meta[9], meta[10],
  redis.call('HGET', KEYS[1], 'e' .. branch) or '',
}
