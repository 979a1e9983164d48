-- Puts a tenant's record in the place of the one that the writer has read, and says who did what in the same moment.
--
-- KEYS: book, changes, mark of the secret, id of the last change
-- ARGV: tenant, record as it was ('': none), as it will be ('': none), the writer's mark ('': no key was made), and who,
--       via, action, detail for the list of changes, and a random word
-- Gives: the id of the change; 0 if the record is another by now; -1 if the keys were made with another secret.

local book, changes, mark = KEYS[1], KEYS[2], KEYS[3]
local tenant, before, after, own = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if (redis.call('HGET', book, tenant) or '') ~= before then return 0 end
if own ~= '' then
  local known = redis.call('GET', mark)
  if known and known ~= own then return -1 end
  if not known then redis.call('SET', mark, own) end
end
if after == '' then redis.call('HDEL', book, tenant) else redis.call('HSET', book, tenant, after) end
local id = redis.call(
  'XADD', changes, '*', 'tenant', tenant, 'who', ARGV[5], 'via', ARGV[6], 'action', ARGV[7], 'detail', ARGV[8],
  'word', ARGV[9]
)
-- A store that lost its last moments may give an id a second time; the word tells the two changes apart.
redis.call('SET', KEYS[4], id .. ' ' .. ARGV[9])
return id
