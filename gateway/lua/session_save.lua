-- Records a finished call. Merges: extends the branch it continues, else begins a fork. Never asks to try again.
--
-- KEYS: the session, the tenant's live sessions, its deleted ones
-- ARGV: session id, numbers, records, home replica, memory (absent: as it was read)
--
-- Numbers are a MessagePack array: messages known when the call began, 1 if the call begins a turn, prompt tokens,
-- kv_read_bytes, branch (-1: none) and revision of the memory that was read, idle TTL ms, absolute TTL ms, most live
-- sessions, when it was read (ms by this server; where it was not, minus the ms since it would have been), 1 if all of
-- the conversation lay inside a longer branch and its edits are others now: it gets a branch of its own.
-- Records are 21 bytes a message (cumulative digest, token count, role): that of the last known message, if there is
-- one, and behind it those that are new.
-- A branch is the fields m<b> (numbers and head), c<b>.<n> (its n-th 32 records, from 0) and e<b> (memory).

local DIGEST, RECORD, CHUNK = 16, 21, 32
local UNDER_WAY_MS = 3000 -- longer than a gateway waits for this script: so old its count of ms may be
local FIRST, MOST = 8, 32 -- branches that are asked for at once, and that there can be
local MESSAGES, HEAD, REVISION, TURNS, CALLS, PROMPT, KV, SEEN, HOME, REMEMBERED = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
local id, records, home, memory = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local known, turn, prompt_tokens, kv_read_bytes, read_branch, read_revision, idle_ms, absolute_ms, most_live, read_ms, apart =
  unpack(cmsgpack.unpack(ARGV[2]))
local first = math.max(known, 1)
local count = first - 1 + #records / RECORD
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function between(from, to) return string.sub(records, (from - first) * RECORD + 1, (to - first + 1) * RECORD) end
local function link(n) return string.sub(between(n, n), 1, DIGEST) end
local function chunk_of(n) return math.floor((n - 1) / CHUNK) end
local function field(branch, chunk) return 'c' .. branch .. '.' .. chunk end
local function chunk(branch, number) return branch and redis.call('HGET', KEYS[1], field(branch, number)) or '' end

local function stored(branch, n)
  local at = (n - 1) % CHUNK * RECORD
  return string.sub(chunk(branch, chunk_of(n)), at + 1, at + DIGEST)
end

-- How many messages this conversation and a branch have in common, as far as can be told from what was sent; 0 if it
-- is no more than `least`.
local function shared(branch, m, least)
  if m[MESSAGES] >= first and m[MESSAGES] <= count and m[HEAD] == link(m[MESSAGES]) then return m[MESSAGES] end
  local low, high = first - 1, math.min(count, m[MESSAGES])
  if least > low then
    if high <= least or stored(branch, least + 1) ~= link(least + 1) then return 0 end
    low = least + 1
  end
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if stored(branch, middle) == link(middle) then low = middle else high = middle - 1 end
  end
  return low >= first and low or 0
end

local fresh = redis.call('ZADD', KEYS[2], now_ms, id) == 1
local packed = redis.call('HMGET', KEYS[1], 'begun', 'm0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7')
if packed[FIRST + 1] then -- the lowest number that is free is taken first
  local more = {}
  for b = FIRST, MOST - 1 do more[#more + 1] = 'm' .. b end
  for at, value in ipairs(redis.call('HMGET', KEYS[1], unpack(more))) do packed[FIRST + 1 + at] = value end
end
local begun_ms = tonumber(packed[1])

-- Deleted since it was read: what this call knows of it is not written. One that began before it was read was not.
if read_ms <= 0 then read_ms = now_ms + read_ms - UNDER_WAY_MS end
if fresh or not begun_ms or begun_ms >= read_ms then
  local deleted_ms = redis.call('ZSCORE', KEYS[3], id)
  if deleted_ms and tonumber(deleted_ms) >= read_ms then
    if fresh then redis.call('ZREM', KEYS[2], id) end
    return {'deleted', -1, 0, {}, {}, redis.call('ZCARD', KEYS[2])}
  end
end

-- Evicted, or older than a session may get: what is left of it is not continued.
if not begun_ms or fresh or now_ms - begun_ms >= absolute_ms then
  redis.call('DEL', KEYS[1])
  packed, begun_ms = {}, nil
end

local metas, free, oldest = {}, nil, nil
for b = 0, math.max(FIRST, #packed - 1) - 1 do
  if packed[b + 2] then
    metas[b] = cmsgpack.unpack(packed[b + 2])
    if not oldest or metas[b][SEEN] < metas[oldest][SEEN] then oldest = b end
  elseif not free then
    free = b
  end
end

-- The branch that shares most. Where it shares all it has, it goes on with this conversation.
local parent, common = nil, 0
for b, m in pairs(metas) do
  local n = shared(b, m, common)
  if n > common then parent, common = b, n end
end

-- The one that was read goes before longer ones if it ends here.
local own = metas[read_branch]
if own and shared(read_branch, own, 0) == own[MESSAGES] then parent, common = read_branch, own[MESSAGES] end

local written = {}
local function write(name, value)
  written[#written + 1] = name
  written[#written + 1] = value
end

-- The records behind `common`, the first of them joined to what there is of their chunk. What was known to a session
-- that is gone keeps its place as zeros, so that positions are true.
local function append(branch, head)
  for number = chunk_of(common + 1), chunk_of(count) do
    local at = number * CHUNK
    local from, to = math.max(at, common, first - 1) + 1, math.min(at + CHUNK, count)
    local kept = number == chunk_of(common + 1) and string.sub(head, 1, (common - at) * RECORD) or ''
    local lost = string.rep('\0', (math.min(from - 1, to) - at) * RECORD - #kept)
    write(field(branch, number), kept .. lost .. (from <= to and between(from, to) or ''))
  end
end

local status, branch, m
if parent and common == metas[parent][MESSAGES] then
  status, branch, m = 'extended', parent, metas[parent]
  if count > common then append(branch, chunk(branch, chunk_of(common + 1))) end
elseif parent and common == count and apart == 0 then
  status, branch, m = 'held', parent, metas[parent]
else
  status, branch = oldest and 'forked' or 'begun', free or oldest
  m = {0, '', 0, 0, 0, 0, 0, now_ms, now_ms, '', 0}
  if not memory and read_revision > 0 and metas[read_branch] and metas[read_branch][REMEMBERED] == read_revision then
    memory = redis.call('HGET', KEYS[1], 'e' .. read_branch)
  end
  if memory then read_branch, read_revision = branch, 0 end
  for number = 0, chunk_of(common + 1) - 1 do write(field(branch, number), chunk(parent, number)) end
  append(branch, chunk(parent, chunk_of(common + 1)))
  if metas[branch] then
    redis.call('HDEL', KEYS[1], 'e' .. branch)
    for number = 0, chunk_of(metas[branch][MESSAGES]) do redis.call('HDEL', KEYS[1], field(branch, number)) end
  end
end

m[REVISION], m[TURNS], m[CALLS] = m[REVISION] + 1, m[TURNS] + turn, m[CALLS] + 1
m[PROMPT], m[KV], m[SEEN] = m[PROMPT] + prompt_tokens, m[KV] + kv_read_bytes, now_ms
if status ~= 'held' then m[MESSAGES], m[HEAD], m[HOME] = count, link(count), home end

-- Edits that another call has written since these were read are not replaced, nor are those of a longer conversation by
-- those of its beginning: the caller joins the two.
local conflict = {}
if memory and status ~= 'held' and branch == read_branch and m[REMEMBERED] == read_revision then
  m[REMEMBERED] = m[REVISION]
  write('e' .. branch, memory)
elseif memory or (read_revision > 0 and branch ~= read_branch) then
  conflict = {m[REMEMBERED], redis.call('HGET', KEYS[1], 'e' .. branch) or ''}
end

if not begun_ms then
  begun_ms = now_ms
  write('begun', begun_ms)
end
write('m' .. branch, cmsgpack.pack(m))
for at = 1, #written, 1000 do redis.call('HSET', KEYS[1], unpack(written, at, math.min(at + 999, #written))) end
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
return {status, branch, m[REVISION], evicted, conflict, redis.call('ZCARD', KEYS[2])}
