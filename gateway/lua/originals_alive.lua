-- Which originals of a session are there, and for how long? Reads only.
--
-- KEYS: the session's originals, the tenant's texts by their end
-- Gives: handle, ms left, handle, ms left ...

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for _, handle in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now_ms, '+inf', 'LIMIT', 0, 4096)) do
  local ends_ms = tonumber(redis.call('ZSCORE', KEYS[2], 'o:' .. handle) or 0)
  if ends_ms > now_ms then
    found[#found + 1] = handle
    found[#found + 1] = ends_ms - now_ms
  end
end
return found
