-- What of a tenant's store is text: how many bytes each text has, when it was last used, when it ends.
--
-- Shared by scripts that write text; it stands before them. `index` is the three keys of the tenant's texts: members by
-- last use (ms), members by their end (ms), bytes by member, with the sum of all under ''. A member is the rest of its
-- text's key behind the tenant's place. A text that is not listed does not exist, even while its key waits to be deleted.

local function text_gone(index, member)
  local bytes = redis.call('HGET', index[3], member)
  redis.call('ZREM', index[1], member)
  redis.call('ZREM', index[2], member)
  if bytes then
    redis.call('HDEL', index[3], member)
    redis.call('HINCRBY', index[3], '', -bytes)
  end
end

-- A text was written or used: it has `bytes` now ('' or nil: as many as before) and ends in `ttl_ms`.
local function text_used(index, now_ms, member, bytes, ttl_ms)
  local before = tonumber(redis.call('HGET', index[3], member) or 0)
  local now = tonumber(bytes or '') or before
  if now <= 0 then return text_gone(index, member) end
  redis.call('ZADD', index[1], now_ms, member)
  redis.call('ZADD', index[2], now_ms + ttl_ms, member)
  redis.call('HSET', index[3], member, now)
  redis.call('HINCRBY', index[3], '', now - before)
end

-- Takes texts off the list whose time is over, then the longest unused ones until `cap` bytes are left (so many at
-- once that a script stays short; the rest goes next time). Whoever is `in_use` now is used now, which is noted only when
-- it comes to that. Gives the bytes left and who was taken off before its time.
local function texts_bounded(index, now_ms, cap, in_use)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', index[2], '-inf', now_ms, 'LIMIT', 0, 256)) do
    text_gone(index, member)
  end
  local gone = {}
  local total = tonumber(redis.call('HGET', index[3], '') or 0)
  while total > cap and #gone < 1000 do
    local member, used_ms = unpack(redis.call('ZRANGE', index[1], 0, 0, 'WITHSCORES'))
    if not member then break end
    if in_use and tonumber(used_ms) < now_ms and in_use(member) then
      redis.call('ZADD', index[1], now_ms, member)
    else
      text_gone(index, member)
      gone[#gone + 1] = member
      total = tonumber(redis.call('HGET', index[3], '') or 0)
    end
  end
  local last = redis.call('ZRANGE', index[2], -1, -1, 'WITHSCORES')[2]
  for _, key in ipairs(index) do
    if last then redis.call('PEXPIRE', key, math.max(1, last - now_ms)) else redis.call('DEL', key) end
  end
  return total, gone
end
