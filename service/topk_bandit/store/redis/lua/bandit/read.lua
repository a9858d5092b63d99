#!lua flags=no-writes
-- Read what is known of a bandit, and of some of its slates, items and fields.
-- KEYS[1..11]   `BanditKeys.of_decisions`, or `BanditKeys.of_visitor` with two more
-- ARGV[1] 1 if the slates of recommendations that have ended are needed, else 0
-- ARGV[2] how many ids of recommendations follow
-- ARGV[..] behind these: which key has it, and what field, of each field
-- Returns {'known', the time, the bandit as `known_bandit` has it, how many items it has, a list with each recommendation as
-- `known_slate` has it, a list with each field, which is empty where it is not there, and how many visitors are counted}, or
-- {'no_bandit'}.

local bandit = known_bandit()
if not bandit then
  return {'no_bandit'}
end
local slates, fields, last = {}, {}, 2 + ARGV[2]
for i = 3, last do
  slates[#slates + 1] = known_slate(ARGV[i], ARGV[1] == '1')
end
for i = last + 1, #ARGV, 2 do
  fields[#fields + 1] = redis.call('HGET', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) or ''
end
local at_ms = text(now_ms())
local visitors = KEYS[12] and redis.call('ZCOUNT', KEYS[12], '(' .. at_ms, '+inf') or 0
return {'known', at_ms, bandit, redis.call('HLEN', keys.items), slates, fields, visitors}
