#!lua
-- Decide a recommendation's reward, or take in one of several.
-- KEYS[1] meta              read: reward range and aggregation, only_follower, closed; written: pending, late_rewards, clamped_rewards, closed
-- KEYS[2] log               written: Rewarded or RewardCollected, Activated before that if there is none; or the end when the deadline passed unnoticed
-- KEYS[3] recommendations   written: the record; it goes when it is closed
-- KEYS[4] deadlines         written: the deadline goes
-- KEYS[5..8] closed         read: is it closed; written: what is kept of it
-- ARGV[3] recommendation id
-- ARGV[4] value, as the one text of its number
-- ARGV[5] reward id
-- ARGV[6] 1 for the final reward, else 0
-- ARGV[7] how many rewards a recommendation can have
-- Returns {'accepted', position}, {'duplicate', position}, {'late', 0}, {'no_bandit'}, {'no_reward_id'},
-- {'no_recommendation', id}, {'reward_exists', id}, {'reward_final', id}, {'reward_count', id} or {'out_of_range', ends}.
-- The position is that of the event with the reward, 0 if there is none. Where events were appended, they come last.

local bandit = redis.call('HMGET', KEYS[1], 'reward_range', 'clamps', 'reward_aggregation', 'closed')
if not bandit[1] then
  return {'no_bandit'}
end
read_slices(bandit[4])
local id, posted, kind = ARGV[3], ARGV[4], bandit[3]
local reward_id = kind == 'first' and '' or ARGV[5]
local ends = kind == 'first' or ARGV[6] == '1'
if kind ~= 'first' and reward_id == '' then
  return {'no_reward_id'}
end
local record, at_ms = find_record(id), now_ms()
if not record then
  return {'no_recommendation', id}
end

local in_time = at_ms < tonumber(record.deadline_ms)
local known = find_reward(record, reward_id)
if known and not is_same(known[2], posted) then
  return {'reward_exists', id}
end
if known and not (ends and in_time and is_open(record) and known[3] ~= '-') then
  return confirm(KEYS[1], {'duplicate', known[4]})
end
if not known and in_time and not is_open(record) then
  return {'reward_final', id}
end
if not known and #record.rewards >= tonumber(ARGV[7]) then
  return {'reward_count', id}
end
local learned = within_range(posted, bandit[1], bandit[2])
if not learned and not known then
  return {'out_of_range', bandit[1]}
end

if not in_time then
  table.insert(record.rewards, {reward_key(record, reward_id), posted, '-', '0'})
  if is_open(record) then
    settle(id, record, at_ms)
    announce(KEYS[1])
  else
    close_record(id, record, record.state)
  end
  file_closed(at_ms)
  write('HINCRBY', KEYS[1], 'late_rewards', 1)
  return commit_and_tell(KEYS[1], {'late', '0'})
end
if record.state == 'inactive' then
  append_activated(id, record, at_ms)
end
if not known then
  known = {reward_id, posted, learned, '0'}
  table.insert(record.rewards, known)
  if learned ~= posted then
    write('HINCRBY', KEYS[1], 'clamped_rewards', 1)
  end
end
if ends then
  known[4] = append_rewarded(id, record, aggregate(kind, record.rewards), at_ms)
  close_record(id, record, 'rewarded')
  file_closed(at_ms)
else
  known[4] = append_collected(id, record, reward_id, learned, at_ms)
  write('HSET', KEYS[3], id, pack_record(record))
end
announce(KEYS[1])
return commit_and_tell(KEYS[1], {'accepted', known[4]})
