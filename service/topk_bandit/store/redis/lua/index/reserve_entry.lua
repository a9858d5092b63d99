#!lua
-- Put a bandit or a study into its tenant's index, before it is created.
-- KEYS[1] index          written: the entry
-- KEYS[2] reservations   written: "incarnation at_ms", who reserved the entry last and when
-- ARGV[1] id
-- ARGV[2] incarnation
-- ARGV[3] how many entries the tenant may have
-- Returns {'reserved', at_ms} or {'full', how many it has}.

local known, count = redis.call('ZSCORE', KEYS[1], ARGV[1]), redis.call('ZCARD', KEYS[1])
if not known and count >= tonumber(ARGV[3]) then
  return {'full', text(count)}
end
local at_ms = text(now_ms())
write('ZADD', KEYS[1], 0, ARGV[1])
write('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. at_ms)
return commit({'reserved', at_ms})
