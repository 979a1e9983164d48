-- What has changed among the tenants of the store since a change that the reader knows. Reads only.
--
-- KEYS: book, changes, mark of the secret, id and word of the last change
-- ARGV: id and word of the last known change ('': nothing is known), how many changes to tell at most
-- Gives: id and word of the last change, the mark, and if they differ 1 with names and records of what changed ('': gone),
-- or 0 if everything must be read again: what the reader knows is no change of this store, or too many follow.

local book, changes, mark = KEYS[1], KEYS[2], redis.call('GET', KEYS[3]) or ''
local known, most = ARGV[1], tonumber(ARGV[2])
local last = redis.call('GET', KEYS[4]) or 'none' -- kept apart: the list of changes may be trimmed at any time
if last == known then return {last, mark} end

local known_id, word = string.match(known, '^(%S+) (%S+)$')
local entry = known_id and redis.call('XRANGE', changes, known_id, known_id)[1]
if not entry or entry[2][#entry[2]] ~= word then return {last, mark, 0} end

local news = redis.call('XRANGE', changes, '(' .. known_id, '+', 'COUNT', most + 1)
if #news > most then return {last, mark, 0} end
local names, seen = {}, {}
for _, entry in ipairs(news) do
  for at = 1, #entry[2], 2 do
    local name = entry[2][at + 1]
    if entry[2][at] == 'tenant' and not seen[name] then
      names[#names + 1], seen[name] = name, true
    end
  end
end
if #names == 0 then return {last, mark, 0} end
local records = redis.call('HMGET', book, unpack(names))
for at = 1, #names do records[at] = records[at] or '' end
return {last, mark, 1, names, records}
