#!lua flags=no-writes
-- Read what is known of a bandit and of some of its slates.
-- KEYS[1..8]   `BanditKeys.of_slates`
-- KEYS[9] items
-- ARGV[1] 1 if the slates of recommendations that have ended are needed, else 0
-- ARGV[2] how many ids of recommendations follow; behind these come ids of items
-- Returns {'known', the time, the bandit as `known_bandit` has it, a list with each recommendation as `told_slate` has it, and
-- the ids of those items that the bandit has}, or {'no_bandit'}.

local bandit = known_bandit()
if not bandit then
  return {'no_bandit'}
end
local slates, items, last = {}, {}, 2 + ARGV[2]
for i = 3, last do
  slates[#slates + 1] = told_slate(ARGV[i], ARGV[1] == '1')
end
for i = last + 1, #ARGV do
  if redis.call('HGET', KEYS[9], ARGV[i]) then
    items[#items + 1] = ARGV[i]
  end
end
return {'known', text(now_ms()), bandit, slates, items}
