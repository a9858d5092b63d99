-- Shared by all scripts: scripts.py puts it in front of each.
-- Reward values are text from end to end; only times, positions and counts are numbers here.
-- A script that announces has ARGV[1] = channel to announce on, ARGV[2] = announcement of the bandit.

local function text(integer)
  return string.format('%.0f', integer)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function announce()
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end

-- Append an event behind the newest one; `...` are further fields of the entry. Returns its position.
local function append(meta, log, at_ms, event, ...)
  local position = text(redis.call('HGET', meta, 'log_position') + 1)
  redis.call('XADD', log, position .. '-0', 'at_ms', text(at_ms), 'event', event, ...)
  redis.call('HSET', meta, 'log_position', position)
  return position
end

-- A recommendation's record: "state deadline_ms fingerprint value recommendation", with value "-" until there is one.
local function unpack_record(packed)
  local state, deadline_ms, fingerprint, value, recommendation =
    string.match(packed, '^(%l+) (%d+) (%x+) (%S+) (.*)$')
  return {
    state = state, deadline_ms = deadline_ms, fingerprint = fingerprint,
    value = value, recommendation = recommendation,
  }
end

local function pack_record(record)
  return record.state .. ' ' .. record.deadline_ms .. ' ' .. record.fingerprint .. ' ' .. record.value
    .. ' ' .. record.recommendation
end

-- Answer for a recommendation id that is recorded already.
local function recall(packed, fingerprint)
  local record = unpack_record(packed)
  if record.fingerprint ~= fingerprint then
    return {'request_id_reused'}
  end
  return {'repeated', record.deadline_ms, record.recommendation}
end

-- Write a record back in a state that ends it, and note when. `keys` names meta, recommendations, deadlines and closed.
local function close_record(keys, id, record, state, at_ms)
  if redis.call('ZREM', keys.deadlines, id) == 1 then
    redis.call('HINCRBY', keys.meta, 'pending', -1)
  end
  record.state = state
  redis.call('HSET', keys.recommendations, id, pack_record(record))
  redis.call('ZADD', keys.closed, text(at_ms), id)
end

-- Append `Expired`, with the default reward as it is now. The codec reads what is put together here.
local function append_expired(meta, log, id, at_ms)
  local default_reward = redis.call('HGET', meta, 'default_reward')
  append(meta, log, at_ms, '{"v":1,"type":"expired","recommendation_id":' .. cjson.encode(id)
    .. ',"default_reward":' .. default_reward .. '}')
end
