-- Records a finished call. Merges: extends the branch it continues, else begins a fork. Never asks to try again.
--
-- KEYS: the session, the tenant's live sessions
-- ARGV: session id, records, memory, home replica, prompt tokens, kv_read_bytes, 1 if the call begins a turn,
--       idle TTL ms, absolute TTL ms, most live sessions
--
-- Records are 21 bytes a message: all cumulative digests, then all token counts, then all roles.
-- A branch is the fields m<b> (numbers and head), c<b> (records) and e<b> (memory).

local DIGEST, RECORD = 16, 21
local FIELDS = {'m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7'}
local id, records, memory, home = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local prompt_tokens, kv_read_bytes, turn = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local idle_ms, absolute_ms, most_live = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local count = #records / RECORD
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function link(chain, n) return string.sub(chain, (n - 1) * DIGEST + 1, n * DIGEST) end

local fresh = redis.call('ZADD', KEYS[2], now_ms, id) == 1
local packed = redis.call('HMGET', KEYS[1], 'begun', unpack(FIELDS))
local begun_ms = tonumber(packed[1])

-- Evicted, or older than a session may get: what is left of it is not continued.
if not begun_ms or fresh or now_ms - begun_ms >= absolute_ms then
  redis.call('DEL', KEYS[1])
  packed, begun_ms = {}, now_ms
end

local metas, free, oldest = {}, nil, nil
for b = 0, #FIELDS - 1 do
  if packed[b + 2] then
    metas[b] = cmsgpack.unpack(packed[b + 2])
    if not oldest or metas[b][9] < metas[oldest][9] then oldest = b end
  elseif not free then
    free = b
  end
end

-- The branch that this conversation continues (there is one at most: no branch is the beginning of another, it would
-- have been extended); else one that already holds all of it (a repeated or overtaken call); else a new one.
local status, branch = 'forked', nil
for b, m in pairs(metas) do
  if m[1] <= count and m[2] == link(records, m[1]) then status, branch = 'extended', b end
end
if not branch then
  for b, m in pairs(metas) do
    if m[1] > count and link(redis.call('HGET', KEYS[1], 'c' .. b), count) == link(records, count) then
      status, branch = 'held', b
    end
  end
end

local m
if branch then
  m = metas[branch]
else
  if not oldest then status = 'begun' end
  branch = free or oldest
  m = {0, '', 0, 0, 0, 0, 0, now_ms, now_ms, ''}
end
m[3], m[4], m[5] = m[3] + 1, m[4] + turn, m[5] + 1
m[6], m[7], m[9] = m[6] + prompt_tokens, m[7] + kv_read_bytes, now_ms
local written = {'begun', begun_ms}
if status ~= 'held' then
  m[1], m[2], m[10] = count, link(records, count), home
  written = {'begun', begun_ms, 'c' .. branch, records, 'e' .. branch, memory}
end
written[#written + 1] = 'm' .. branch
written[#written + 1] = cmsgpack.pack(m)
redis.call('HSET', KEYS[1], unpack(written))
redis.call('PEXPIRE', KEYS[1], math.max(1, math.min(idle_ms, begun_ms + absolute_ms - now_ms)))
redis.call('PEXPIRE', KEYS[2], idle_ms)

-- A session more: who idled out leaves the list, then the longest idle make room.
local evicted = {}
if fresh then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms - idle_ms)
  local excess = redis.call('ZCARD', KEYS[2]) - most_live
  if excess > 0 then
    for _, other in ipairs(redis.call('ZRANGE', KEYS[2], 0, excess)) do
      if other ~= id and #evicted < excess then
        redis.call('ZREM', KEYS[2], other)
        evicted[#evicted + 1] = other
      end
    end
  end
end
return {status, branch, m[3], evicted}
