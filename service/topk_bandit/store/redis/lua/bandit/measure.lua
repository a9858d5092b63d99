#!lua flags=no-writes
-- Measure what a bandit has; a key that is missing has nothing.
-- KEYS[1..] all keys of the bandit: meta, log, items, retired, recommendations, deadlines, imports, followers, visitors, ...
--           read: how many items there are and deadlines to come, and what each key takes in memory
-- ARGV[1]   what a visitor takes, about: their keys are none of these
-- Returns {items, open slates, bytes}.

local bytes = redis.call('ZCARD', KEYS[9]) * tonumber(ARGV[1])
for _, key in ipairs(KEYS) do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
end
return {redis.call('HLEN', KEYS[3]), redis.call('ZCOUNT', KEYS[6], '(' .. text(now_ms()), '+inf'), bytes}
