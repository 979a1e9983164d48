-- Counts texts that were written or used, and takes off the list who must go for it.
--
-- KEYS: the tenant's texts: by last use, by end, bytes
-- ARGV: most bytes, then for each text: member, its bytes ('': as before; 0: it is gone), ms to its end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV, 3 do text_used(KEYS, now_ms, ARGV[at], ARGV[at + 1], ARGV[at + 2]) end
local total, gone = texts_bounded(KEYS, now_ms, tonumber(ARGV[1]))
return {total, gone}
