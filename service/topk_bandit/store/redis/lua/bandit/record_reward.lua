#!lua
-- Decide a recommendation's reward.
-- KEYS[1] meta              read: reward range; written: pending, late_rewards, clamped_rewards
-- KEYS[2] log               written: Rewarded, or Expired when the deadline passed unnoticed
-- KEYS[3] recommendations   written: the record
-- KEYS[4] deadlines         written: the deadline goes
-- KEYS[5] closed            written: when the record was closed
-- ARGV[3] recommendation id
-- ARGV[4] value, as the one text of its number
-- Returns {'accepted', position}, {'duplicate', position}, {'late', 0}, {'no_bandit'}, {'no_recommendation', id},
-- {'reward_exists', id} or {'out_of_range', ends}. The position is that of Rewarded, 0 if there is none.

local bandit = redis.call('HMGET', KEYS[1], 'reward_range', 'clamps')
if not bandit[1] then
  return {'no_bandit'}
end
local packed = redis.call('HGET', KEYS[3], ARGV[3])
if not packed then
  return {'no_recommendation', ARGV[3]}
end
local record = unpack_record(packed)
if record.value == ARGV[4] then
  return {'duplicate', record.position}
end
if record.value ~= '-' then
  return {'reward_exists', ARGV[3]}
end

local learned = within_range(ARGV[4], bandit[1], bandit[2])
if not learned then
  return {'out_of_range', bandit[1]}
end
local keys = {meta = KEYS[1], recommendations = KEYS[3], deadlines = KEYS[4], closed = KEYS[5]}
local at_ms = now_ms()
record.value = ARGV[4]
if record.state == 'pending' and at_ms < tonumber(record.deadline_ms) then
  record.position = append_rewarded(KEYS[1], KEYS[2], ARGV[3], record, learned, at_ms)
  if learned ~= ARGV[4] then
    redis.call('HINCRBY', KEYS[1], 'clamped_rewards', 1)
  end
  close_record(keys, ARGV[3], record, 'rewarded', at_ms)
  announce()
  return {'accepted', record.position}
end
if record.state == 'pending' then
  append_expired(KEYS[1], KEYS[2], ARGV[3], record, at_ms)
  announce()
end
close_record(keys, ARGV[3], record, 'late', at_ms)
redis.call('HINCRBY', KEYS[1], 'late_rewards', 1)
return {'late', record.position}
