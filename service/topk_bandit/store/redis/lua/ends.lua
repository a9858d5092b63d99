-- How recommendations end: the events that say so.

-- Append how a pending recommendation ended, and return the position. The codec reads what is put together here and below.
local function append_end(at_ms, id, kind, field, value, shown_then)
  return append(keys.meta, keys.log, at_ms, head(kind) .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"' .. field .. '":' .. value .. ',"shown":' .. shown_then .. '}')
end

-- Append `Rewarded`, and return its position; `value` is the one text of its number.
local function append_rewarded(id, record, value, at_ms)
  record.position = append_end(at_ms, id, 'rewarded', 'value', value, shown(record))
  return record.position
end

-- Append `RewardCollected`, and return its position.
local function append_collected(id, reward_id, value, at_ms)
  return append(keys.meta, keys.log, at_ms, head('reward_collected') .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"reward_id":' .. cjson.encode(reward_id) .. ',"value":' .. value .. '}')
end

-- Append `Expired`, with the default reward as it is now.
local function append_expired(id, record, at_ms)
  local default_reward = redis.call('HGET', keys.meta, 'default_reward')
  local shown_then = default_reward == 'null' and 'null' or shown(record)
  append_end(at_ms, id, 'expired', 'default_reward', default_reward, shown_then)
end

-- Append `Activated` for an inactive recommendation, which becomes pending, and return the position.
local function append_activated(id, record, at_ms)
  record.state = 'pending'
  write('HINCRBY', keys.meta, 'pending', 1)
  local instead = record.instead == '-' and 'false' or 'true'
  return append(keys.meta, keys.log, at_ms, head('activated') .. '"recommendation_id":' .. cjson.encode(id)
    .. ',"shown":' .. shown(record) .. ',"instead":' .. instead .. '}')
end

local function append_lapsed(id, at_ms)
  return append(keys.meta, keys.log, at_ms, head('lapsed') .. '"recommendation_id":' .. cjson.encode(id) .. '}')
end

-- End an open recommendation after its deadline: with what its rewards come to, without any, or because it was never shown.
local function settle(id, record, at_ms)
  if record.state == 'inactive' then
    append_lapsed(id, at_ms)
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
