-- Keeps a record for whoever has the right to make it, or gives that right back.
--
-- KEYS: the tenant's texts (three), the session's records, who makes one now
-- ARGV: the records' member, the record's name, the token, and to keep it: the record, ms to live, most bytes of the
--       tenant, most records of the session
-- Gives: 1 if it is kept (0: the session was deleted meanwhile, or another has the right), bytes, members that went
--
-- The field '' holds the names of the records there are, 16 bytes each, the newest last.

local index = {KEYS[1], KEYS[2], KEYS[3]}
local member, name, token = ARGV[1], ARGV[2], ARGV[3]
local held = string.match(redis.call('HGET', KEYS[5], name) or '', '^(%S+) ')
if held ~= token then return {0, 0, {}} end
redis.call('HDEL', KEYS[5], name)
if not ARGV[4] then return {0, 0, {}} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', KEYS[1], member) then redis.call('DEL', KEYS[4]) end
local names = redis.call('HGET', KEYS[4], '') or ''
names = names .. name
while #names > 16 * tonumber(ARGV[7]) do
  redis.call('HDEL', KEYS[4], string.sub(names, 1, 16))
  names = string.sub(names, 17)
end
redis.call('HSET', KEYS[4], name, ARGV[4], '', names)
redis.call('PEXPIRE', KEYS[4], ARGV[5])
local bytes = 0
for at = 1, #names, 16 do bytes = bytes + redis.call('HSTRLEN', KEYS[4], string.sub(names, at, at + 15)) end
text_used(index, now_ms, member, bytes, tonumber(ARGV[5]))
local total, gone = texts_bounded(index, now_ms, tonumber(ARGV[6]))
return {1, total, gone}
