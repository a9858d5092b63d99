#!lua
-- Record a recommendation and open its deadline.
-- KEYS[1] meta              read: incarnation, items_position, reward wait, activation, only_follower, closed; written: pending
-- KEYS[2] log               written: Recommended
-- KEYS[3] recommendations   written: the record
-- KEYS[4] deadlines         written: the deadline
-- KEYS[5..8] closed         read: is it recorded and closed
-- ARGV[3] recommendation id
-- ARGV[4] fingerprint of the request
-- ARGV[5] recommendation
-- ARGV[6] Recommended
-- ARGV[7] context, as events have it
-- ARGV[8] incarnation that the caller decided for
-- ARGV[9] items_position that the caller decided for
-- ARGV[10] 1 for a slate that is set aside, else 0
-- Returns {'recorded', deadline_ms, position, what was appended}, {'repeated', deadline_ms, recommendation},
-- {'logged', Recommended}, {'slate_gone', id}, {'stale'}, {'no_bandit'} or {'request_id_reused'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'items_position', 'reward_wait_ms', 'requires_activation',
  'closed')
if not bandit[1] then
  return {'no_bandit'}
end
read_slices(bandit[5])
local known = find_record(ARGV[3])
if known then
  return recall(ARGV[3], known, ARGV[4])
end
if bandit[1] ~= ARGV[8] or bandit[2] ~= ARGV[9] then
  return {'stale'}
end
local at_ms = now_ms()
local deadline_ms = text(at_ms + bandit[3])
local position = append(KEYS[1], KEYS[2], at_ms, ARGV[6], deadline_ms)
local state = bandit[4] == '1' and 'inactive' or 'pending'
write('HSET', KEYS[3], ARGV[3], pack_record({
  state = state, aside = ARGV[10] == '1', deadline_ms = deadline_ms, fingerprint = ARGV[4], logged = position, position = '0', rewards = {},
  at_ms = text(at_ms), context = ARGV[7], instead = '-', recommendation = ARGV[5],
}))
write('ZADD', KEYS[4], deadline_ms, ARGV[3])
write('HINCRBY', KEYS[1], 'pending', state == 'pending' and 1 or 0)
announce(KEYS[1])
return commit_and_tell(KEYS[1], {'recorded', deadline_ms, position})
