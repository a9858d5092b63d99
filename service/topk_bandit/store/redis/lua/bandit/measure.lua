#!lua flags=no-writes
-- Measure what a bandit has; a key that is missing has nothing.
-- KEYS[1..] all keys of the bandit: meta, log, items, retired, recommendations, deadlines, ...
--           read: how many items there are and deadlines to come, and what each key takes in memory
-- Returns {items, open slates, bytes}.

local bytes = 0
for _, key in ipairs(KEYS) do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
end
return {redis.call('HLEN', KEYS[3]), redis.call('ZCOUNT', KEYS[6], '(' .. text(now_ms()), '+inf'), bytes}
