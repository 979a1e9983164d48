-- Adds what a gateway has seen of replies to what all have seen, and gives the whole.
--
-- KEYS: the counts of one tenant and model, by bin
-- ARGV: the units at which all counts are halved, how long they are kept (ms), then bin and units of each new count
--
-- Halving makes what is long past fade. Units are whole numbers, many to one reply, so that halving loses little.

local full, keep_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
for at = 3, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end

local counts, total = redis.call('HGETALL', KEYS[1]), 0
for at = 2, #counts, 2 do total = total + tonumber(counts[at]) end

while total >= full do
  total = 0
  for at = 1, #counts, 2 do
    local half = math.floor(tonumber(counts[at + 1]) / 2)
    counts[at + 1], total = tostring(half), total + half
    if half > 0 then redis.call('HSET', KEYS[1], counts[at], half) else redis.call('HDEL', KEYS[1], counts[at]) end
  end
end

if #ARGV > 2 then redis.call('PEXPIRE', KEYS[1], keep_ms) end
return counts
