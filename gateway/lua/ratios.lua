-- Adds what a gateway has seen of a model's tokens to what all have seen, and gives the whole.
--
-- KEYS: the sums of one model
-- ARGV: how long they are kept (ms), then for each ratio: its name, the sum that is large enough, tokens and what they
-- are set against
-- Gives for each ratio both sums.
--
-- Sums beyond what is large enough shrink in proportion, which makes what is long past fade.

local sums, keep_ms, whole, new = KEYS[1], ARGV[1], {}, false
for at = 2, #ARGV, 4 do
  local tokens_at, against_at = ARGV[at] .. ':tokens', ARGV[at] .. ':against'
  local stored = redis.call('HMGET', sums, tokens_at, against_at)
  local tokens, against = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
  if tonumber(ARGV[at + 3]) > 0 then
    tokens, against, new = tokens + tonumber(ARGV[at + 2]), against + tonumber(ARGV[at + 3]), true
    local shrunk = math.min(1, tonumber(ARGV[at + 1]) / against)
    tokens, against = math.floor(tokens * shrunk), math.floor(against * shrunk)
    redis.call('HSET', sums, tokens_at, string.format('%.0f', tokens), against_at, string.format('%.0f', against))
  end
  whole[#whole + 1], whole[#whole + 2] = tokens, against
end
if new then redis.call('PEXPIRE', sums, keep_ms) end
return whole
