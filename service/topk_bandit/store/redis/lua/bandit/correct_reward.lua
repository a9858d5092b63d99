#!lua
-- Replace a reward that was accepted, or take it back.
-- KEYS[1] meta              read: incarnation, revision, reward range, aggregation, positions, closed; written: pending, closed
-- KEYS[2] log               written: RewardCollected, RewardAmended, or the end of what is taken back before it ended
-- KEYS[3] recommendations   written: the record; it goes when it is closed
-- KEYS[4] deadlines         written: the deadline of what is ended goes
-- KEYS[5..8] closed         read: is it closed; written: what is kept of it
-- ARGV[3] recommendation id
-- ARGV[4] reward id
-- ARGV[5] value, as the one text of its number, or "-" to take the reward back
-- ARGV[6] incarnation, ARGV[7] revision of the bandit that the caller looked at
-- ARGV[8] the position up to which the model knows the log that the caller looked at
-- ARGV[9] the last position at which a correction of what was learned is exact, 0 if there is none
-- Returns {'accepted', position}, {'duplicate', 0}, {'stale', 0}, {'no_bandit'}, {'no_recommendation', id},
-- {'no_reward', id}, {'no_reward_id'}, {'reward_void', id}, {'folded', id} or {'out_of_range', ends}.

local bandit = redis.call('HMGET', KEYS[1],
  'incarnation', 'revision', 'reward_range', 'clamps', 'reward_aggregation', 'log_position', 'items_position',
  'imported_position', 'closed')
if not bandit[1] then
  return {'no_bandit'}
end
read_slices(bandit[9])
local id, kind, value = ARGV[3], bandit[5], ARGV[5]
local reward_id, takes_back = kind == 'first' and '' or ARGV[4], ARGV[5] == '-'
local record, at_ms = find_record(id), now_ms()
if not record then
  return {'no_recommendation', id}
end
if record.state == 'expired' or record.state == 'lapsed' then
  return {'no_reward', id}
end
if record.state == 'void' then
  if takes_back then
    return confirm(KEYS[1], {'duplicate', '0'})
  end
  return {'reward_void', id}
end

-- The rewards that it is about: late ones, which have no position, were never accepted.
local chosen, sought = {}, reward_key(record, reward_id)
for _, reward in ipairs(record.rewards) do
  if reward[4] ~= '0' and (sought == '' or reward[1] == sought) then
    chosen[#chosen + 1] = reward
  end
end
local ends = takes_back and reward_id == '' and is_open(record)
if #chosen == 0 and not ends then
  return {'no_reward', id}
end
if #chosen > 1 and not takes_back then
  return {'no_reward_id'}
end
if not takes_back and chosen[1][3] == '-' then
  return {'reward_void', id}
end
value = takes_back and '-' or within_range(value, bandit[3], bandit[4])
if not value then
  return {'out_of_range', bandit[3]}
end
local differs = ends
for _, reward in ipairs(chosen) do
  differs = differs or not is_same(reward[3], value)
end
if not differs then
  return confirm(KEYS[1], {'duplicate', '0'})
end
if not is_open(record) and not record.aside then
  if tonumber(record.position) > tonumber(ARGV[8]) then
    return {'stale', '0'}
  end
  if ARGV[9] == '0' then
    return {'folded', id}
  end
  -- New items may take the places of old ones, which folds rewards, and an import does.
  local folds = math.max(tonumber(bandit[7]), tonumber(bandit[8])) > tonumber(ARGV[8])
  if folds or bandit[1] ~= ARGV[6] or bandit[2] ~= ARGV[7] or tonumber(bandit[6]) >= tonumber(ARGV[9]) then
    return {'stale', '0'}
  end
end

-- Of a slate that was set aside nothing was learned, so that nobody else knows what its reward was.
local before = record.aside and aggregate(kind, record.rewards)
for _, reward in ipairs(chosen) do
  reward[3] = value
end
local position
if ends then
  if record.state == 'inactive' then
    position = append_lapsed(id, record, at_ms)
  else
    position = append_end(at_ms, id, record, 'expired', 'default_reward', 'null', 'null')
  end
  close_record(id, record, 'void')
elseif is_open(record) then
  position = append_collected(id, record, chosen[1][1], takes_back and 'null' or value, at_ms)
  write('HSET', KEYS[3], id, pack_record(record))
else
  local left = aggregate(kind, record.rewards)
  position = append(KEYS[1], KEYS[2], at_ms, head('reward_amended') .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"value":' .. (left or 'null') .. (before and ',"before":' .. before or '') .. '}')
  record.position = position
  close_record(id, record, left and 'rewarded' or 'void')
end
file_closed(at_ms)
announce()
return commit({'accepted', position})
