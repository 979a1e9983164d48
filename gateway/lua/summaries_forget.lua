-- Deletes the records of a session, and with them the right of whoever makes one now.
--
-- KEYS: the tenant's texts (three), the session's records, who makes one now
-- ARGV: the records' member
-- Gives: 1 if there was anything

local index = {KEYS[1], KEYS[2], KEYS[3]}
local time = redis.call('TIME')
text_gone(index, ARGV[1])
texts_bounded(index, time[1] * 1000 + math.floor(time[2] / 1000), math.huge)
return redis.call('UNLINK', KEYS[4], KEYS[5]) > 0 and 1 or 0
