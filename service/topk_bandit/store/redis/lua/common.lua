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

-- A recommendation's record: "state deadline_ms fingerprint value position at_ms context recommendation", with value "-"
-- until there is one, position 0 but that of Rewarded, and at_ms and context "-" once it is closed: what was shown is in
-- the event then.
local function unpack_record(packed)
  local state, deadline_ms, fingerprint, value, position, at_ms, context, recommendation =
    string.match(packed, '^(%l+) (%d+) (%x+) (%S+) (%d+) (%S+) (%S+) (.*)$')
  return {
    state = state, deadline_ms = deadline_ms, fingerprint = fingerprint, value = value,
    position = position, at_ms = at_ms, context = context, recommendation = recommendation,
  }
end

local function pack_record(record)
  return table.concat({
    record.state, record.deadline_ms, record.fingerprint, record.value, record.position,
    record.at_ms, record.context, record.recommendation,
  }, ' ')
end

-- What a pending recommendation showed, as events have it.
local function shown(record)
  local slate = cjson.encode(cjson.decode(record.recommendation).slate)
  return '{"context":' .. record.context .. ',"slate":' .. slate .. ',"at_ms":' .. record.at_ms .. '}'
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
  record.state, record.at_ms, record.context = state, '-', '-'
  redis.call('HSET', keys.recommendations, id, pack_record(record))
  redis.call('ZADD', keys.closed, text(at_ms), id)
end

-- Append how a pending recommendation ended, and return the position. The codec reads what is put together here and below.
local function append_end(meta, log, at_ms, id, kind, field, value, shown_then)
  return append(meta, log, at_ms, '{"v":1,"type":"' .. kind .. '","recommendation_id":' .. cjson.encode(id)
    .. ',"' .. field .. '":' .. value .. ',"shown":' .. shown_then .. '}')
end

-- Append `Rewarded`, and return its position; `value` is the one text of its number.
local function append_rewarded(meta, log, id, record, value, at_ms)
  return append_end(meta, log, at_ms, id, 'rewarded', 'value', value, shown(record))
end

-- Append `Expired`, with the default reward as it is now.
local function append_expired(meta, log, id, record, at_ms)
  local default_reward = redis.call('HGET', meta, 'default_reward')
  local shown_then = default_reward == 'null' and 'null' or shown(record)
  append_end(meta, log, at_ms, id, 'expired', 'default_reward', default_reward, shown_then)
end
