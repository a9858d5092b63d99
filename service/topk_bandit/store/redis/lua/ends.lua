-- How recommendations end: the events that say so.

-- Tell whether two values are of equal numbers, or both "-".
local function is_same(value, other)
  return value == other or tonumber(value) and tonumber(value) == tonumber(other)
end

-- Return what the rewards that count come to, nil without any.
local function aggregate(kind, rewards)
  local values, total, largest = {}, 0, nil
  for _, reward in ipairs(rewards) do
    if reward[3] ~= '-' then
      values[#values + 1] = reward[3]
      total = total + reward[3]
      if not largest or tonumber(reward[3]) > tonumber(largest) then
        largest = reward[3]
      end
    end
  end
  if kind == 'first' or #values == 0 then
    return values[1]
  elseif kind == 'last' then
    return values[#values]
  elseif kind == 'max' then
    return largest
  end
  return number_text(kind == 'sum' and total or total / #values)
end

-- What an open recommendation showed, as events have it.
local function shown(record)
  return '{"context":' .. record.context .. ',"slate":' .. slate_of(record) .. ',"at_ms":' .. record.at_ms .. '}'
end

-- Return a reward as it is to be learned, nil for one that is refused; `range` is its two ends, or "-".
local function within_range(value, range, clamps)
  local low, high = string.match(range, '^(%S+) (%S+)$')
  if low and tonumber(value) < tonumber(low) then
    return clamps == '1' and low or nil
  end
  if high and tonumber(value) > tonumber(high) then
    return clamps == '1' and high or nil
  end
  return value
end

-- Return how an event ends about a slate that may be set aside.
local function tail(record)
  return record.aside and ',"aside":true}' or '}'
end

-- Append how a pending recommendation ended, and return the position. The codec reads what is put together here and below.
local function append_end(at_ms, id, record, kind, field, value, shown_then)
  return append(keys.meta, keys.log, at_ms, head(kind) .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"' .. field .. '":' .. value .. ',"shown":' .. shown_then .. tail(record))
end

-- Append `Rewarded`, and return its position; `value` is the one text of its number.
local function append_rewarded(id, record, value, at_ms)
  record.position = append_end(at_ms, id, record, 'rewarded', 'value', value, shown(record))
  return record.position
end

-- Append `RewardCollected`, and return its position.
local function append_collected(id, record, reward_id, value, at_ms)
  return append(keys.meta, keys.log, at_ms, head('reward_collected') .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"reward_id":' .. cjson.encode(reward_id) .. ',"value":' .. value .. tail(record))
end

-- Append `Expired`, with the default reward as it is now.
local function append_expired(id, record, at_ms)
  local default_reward = redis.call('HGET', keys.meta, 'default_reward')
  local shown_then = default_reward == 'null' and 'null' or shown(record)
  append_end(at_ms, id, record, 'expired', 'default_reward', default_reward, shown_then)
end

-- Append `Activated` for an inactive recommendation, which becomes pending, and return the position.
local function append_activated(id, record, at_ms)
  record.state = 'pending'
  write('HINCRBY', keys.meta, 'pending', 1)
  local instead = record.instead == '-' and 'false' or 'true'
  return append(keys.meta, keys.log, at_ms, head('activated') .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"shown":' .. shown(record) .. ',"instead":' .. instead .. tail(record))
end

local function append_lapsed(id, record, at_ms)
  return append(keys.meta, keys.log, at_ms, head('lapsed') .. '"recommendation_id":' .. cjson.encode(id) .. tail(record))
end

-- End an open recommendation after its deadline: with what its rewards come to, without any, or because it was never shown.
local function settle(id, record, at_ms)
  if record.state == 'inactive' then
    append_lapsed(id, record, at_ms)
    close_record(id, record, 'lapsed')
    return
  end
  local value = aggregate(redis.call('HGET', keys.meta, 'reward_aggregation'), record.rewards)
  if value then
    append_rewarded(id, record, value, at_ms)
    close_record(id, record, 'rewarded')
  else
    append_expired(id, record, at_ms)
    close_record(id, record, 'expired')
  end
end
