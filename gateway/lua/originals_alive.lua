-- Which originals of a session are there, and for how long? Reads only.
--
-- KEYS: the session's originals, the tenant's texts by their end
-- Gives: handle, ms left, handle, ms left ...

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
local kept = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 4096)
for at = 1, #kept, 2 do
  local handle = kept[at]
  -- Another session may have renewed it last, and may be deleted: this one counts its own time.
  local ends_ms = math.min(kept[at + 1], redis.call('ZSCORE', KEYS[2], 'o:' .. handle) or 0)
  if ends_ms > now_ms then
    found[#found + 1] = handle
    found[#found + 1] = ends_ms - now_ms
  end
end
return found
