#!lua
-- Note that the end of a log is gone, once for all workers that knew it.
-- KEYS[1] meta   read: incarnation; written: loss_after, loss_end, lost_events, lost_rewards
-- ARGV[1] incarnation
-- ARGV[2] the position after which all is gone
-- ARGV[3] the newest position that the caller knew
-- ARGV[4..] which of the positions that are gone were those of rewards
-- Returns {'ok', events, rewards} that nobody had noted before, or {'no_bandit'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'loss_after', 'loss_end', 'lost_events', 'lost_rewards')
if bandit[1] ~= ARGV[1] then
  return {'no_bandit'}
end
local after = tonumber(bandit[2] == ARGV[2] and bandit[3] or ARGV[2])
local events, rewards = math.max(0, ARGV[3] - after), 0
for i = 4, #ARGV do
  if tonumber(ARGV[i]) > after then
    rewards = rewards + 1
  end
end
if events > 0 then
  write('HSET', KEYS[1], 'loss_after', ARGV[2], 'loss_end', ARGV[3],
    'lost_events', text(bandit[4] + events), 'lost_rewards', text(bandit[5] + rewards))
end
return commit({'ok', text(events), text(rewards)})
