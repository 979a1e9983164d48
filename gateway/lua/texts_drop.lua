-- Deletes texts that were taken off the list, unless they are on it again.
--
-- KEYS: the tenant's texts by last use, then the keys of the texts
-- ARGV: their members

local dropped = 0
for at, member in ipairs(ARGV) do
  if not redis.call('ZSCORE', KEYS[1], member) then dropped = dropped + redis.call('UNLINK', KEYS[at + 1]) end
end
return dropped
