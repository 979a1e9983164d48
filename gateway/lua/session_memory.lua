-- Replaces the memory of a branch if nobody has since it was read.
--
-- KEYS: the session
-- ARGV: branch, revision of the memory that was read, memory
-- Gives: nothing, or the revision and the memory that are there instead; revision -1: the branch is gone.

local REVISION, REMEMBERED = 3, 11
local branch = ARGV[1]
local packed = redis.call('HGET', KEYS[1], 'm' .. branch)
if not packed then return {-1, ''} end
local m = cmsgpack.unpack(packed)
if m[REMEMBERED] ~= tonumber(ARGV[2]) then
  return {m[REMEMBERED], redis.call('HGET', KEYS[1], 'e' .. branch) or ''}
end
m[REVISION] = m[REVISION] + 1
m[REMEMBERED] = m[REVISION]
redis.call('HSET', KEYS[1], 'm' .. branch, cmsgpack.pack(m), 'e' .. branch, ARGV[3])
return {}
