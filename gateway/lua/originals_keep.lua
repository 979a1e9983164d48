-- Keeps originals for a session, those that are new or due; of its others nothing is touched. texts.lua stands before it.
--
-- KEYS: the tenant's texts (3), the session's originals, the tenant's deleted sessions, then for each original: itself,
--       its sessions
-- ARGV: session, most bytes of text, ms to keep, when the session was read (ms by this server; 0: not known), then for
--       each original: handle, sealed text ('': it is there already)
-- Gives: bytes of text, members taken off the list for it, handles of those asked for that are not there now; nothing
-- if the session was deleted since it was read

local MOST_SESSIONS = 1000
local index = {KEYS[1], KEYS[2], KEYS[3]}
local session, cap, ttl_ms, read_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local asked = {}

-- A call under way leaves nothing of a session behind that was deleted meanwhile.
local deleted_ms = redis.call('ZSCORE', KEYS[5], session)
if deleted_ms and read_ms > 0 and tonumber(deleted_ms) >= read_ms then return false end

for at = 5, #ARGV, 2 do
  local handle, sealed, key, sessions = ARGV[at], ARGV[at + 1], KEYS[at + 1], KEYS[at + 2]
  local member = 'o:' .. handle
  asked[#asked + 1] = handle
  if sealed ~= '' then
    redis.call('SET', key, sealed, 'PX', ttl_ms)
  elseif not redis.call('ZSCORE', index[1], member) or redis.call('PEXPIRE', key, ttl_ms) == 0 then
    text_gone(index, member)
    member = nil
  end
  if member then
    text_used(index, now_ms, member, sealed ~= '' and #sealed or nil, ttl_ms)
    redis.call('ZADD', KEYS[4], now_ms + ttl_ms, handle)
    -- So many sessions may share one original; of more it is nobody's own, and goes when its time is over.
    redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now_ms)
    if redis.call('ZSCORE', sessions, session) or redis.call('ZCARD', sessions) < MOST_SESSIONS then
      redis.call('ZADD', sessions, now_ms + ttl_ms, session)
    end
    redis.call('PEXPIRE', sessions, ttl_ms)
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now_ms)
redis.call('PEXPIRE', KEYS[4], math.max(ttl_ms, redis.call('PTTL', KEYS[4])))

-- What the session shows beside them is in use as well: the texts of others go first.
local total, gone = texts_bounded(index, now_ms, cap, function(member)
  return string.sub(member, 1, 2) == 'o:' and redis.call('ZSCORE', KEYS[4], string.sub(member, 3))
end)
local missing = {}
for _, handle in ipairs(asked) do
  if not redis.call('ZSCORE', index[1], 'o:' .. handle) then missing[#missing + 1] = handle end
end
return {total, gone, missing}
