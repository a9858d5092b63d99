#!lua flags=no-writes
-- Read the slates whose deadlines have passed.
-- KEYS[1..8]   `BanditKeys.of_slates`
-- ARGV[1] how many at most
-- Returns {'known', the time, the bandit as `known_bandit` has it, ids, each with its record behind it, and the earliest deadline of all
-- others if there is one}, or {'no_bandit'}.

local bandit = known_bandit()
if not bandit then
  return {'no_bandit'}
end
local at_ms, slates = text(now_ms()), {}
local due = redis.call('ZRANGEBYSCORE', keys.deadlines, '-inf', at_ms, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(due) do
  slates[#slates + 1] = id
  slates[#slates + 1] = redis.call('HGET', keys.recommendations, id) or ''
end
return {'known', at_ms, bandit, slates, redis.call('ZRANGE', keys.deadlines, #due, #due, 'WITHSCORES')[2]}
