-- Which branch of a session does a conversation continue? Reads only.
--
-- KEYS: the session, the tenant's live sessions
-- ARGV: session id, the conversation's cumulative digests (16 bytes a message)
--
-- Digests are cumulative: two conversations that agree on the n-th agree on all before it. So one comparison tells
-- whether a branch is a prefix, and a binary search finds where two part.

local BRANCHES, DIGEST, RECORD = 8, 16, 21
local incoming = ARGV[2]
local incoming_count = #incoming / DIGEST
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function link(n) return string.sub(incoming, (n - 1) * DIGEST + 1, n * DIGEST) end

local function stored_link(chain, n)
  local at = (n - 1) * RECORD + 1
  return string.sub(chain, at, at + DIGEST - 1)
end

local function shared(chain)
  local low, high = 0, math.min(incoming_count, #chain / RECORD)
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if stored_link(chain, middle) == link(middle) then low = middle else high = middle - 1 end
  end
  return low
end

-- A session that was evicted is gone although its record may still wait for its expiry.
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'new', now_ms} end

local fields = {}
for b = 0, BRANCHES - 1 do fields[b + 1] = 'm' .. b end
local packed = redis.call('HMGET', KEYS[1], unpack(fields))
local status, branch, known, meta = 'new', nil, 0, nil

for b = 0, BRANCHES - 1 do
  if packed[b + 1] then
    local m = cmsgpack.unpack(packed[b + 1])
    if m[1] > known and m[1] <= incoming_count and m[2] == link(m[1]) then
      status, branch, known, meta = 'known', b, m[1], m
    end
  end
end

if not branch then
  for b = 0, BRANCHES - 1 do
    if packed[b + 1] then
      local common = shared(redis.call('HGET', KEYS[1], 'c' .. b) or '')
      if common > known then
        status, branch, known, meta = 'fork', b, common, cmsgpack.unpack(packed[b + 1])
      end
    end
  end
end

if not branch then return {'new', now_ms} end
return {
  status, now_ms, branch, known, meta[3], meta[4], meta[5], meta[6], meta[7], meta[8], meta[9], meta[10],
  redis.call('HGET', KEYS[1], 'e' .. branch) or '',
}
