-- What a history holds, without a turn. Reads only.
--
-- KEYS: the history, the tenant's texts by last use
-- ARGV: member of the texts
-- Gives: messages there (0: no history), and its items.

local held = redis.call('HMGET', KEYS[1], 'messages', 'items')
if not held[1] or not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {0} end
local found = {tonumber(held[1])}
for item = 0, tonumber(held[2]) - 1 do found[#found + 1] = redis.call('HGET', KEYS[1], 'i' .. item) or '' end
return found
