-- A recommendation's record while it is open; and after that what closed.lua reads looks the same, but for ids of rewards
-- and the slate, of which it has digests. For the scripts whose KEYS are those of `BanditKeys.of_slates`.

local keys = {
  meta = KEYS[1], log = KEYS[2], recommendations = KEYS[3], deadlines = KEYS[4], closed = {unpack(KEYS, 5, 8)},
}

-- Packed: "state deadline_ms fingerprint logged position rewards at_ms context instead recommendation". The state is inactive,
-- pending, rewarded, expired, lapsed or void. Logged is the position of its Recommended, "0" if nobody knows it, and the
-- position that of the newest Rewarded or RewardAmended, "0" before. At_ms and context are "-" for one that arrived closed.
-- Instead is the slate that was shown, "-" for the recommended one.
-- Of the rewards each is {id, value as it was posted, value as it counts or "-", position in the log or "0"}.
local function unpack_record(packed)
  local state, deadline_ms, fingerprint, logged, position, rewards, at_ms, context, instead, recommendation =
    string.match(packed, '^(%l+) (%d+) (%x+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return {
    state = state, deadline_ms = deadline_ms, fingerprint = fingerprint, logged = logged, position = position,
    rewards = cjson.decode(rewards), at_ms = at_ms, context = context, instead = instead, recommendation = recommendation,
  }
end

-- Return a list as JSON without any space.
local function pack_list(list)
  return #list == 0 and '[]' or (string.gsub(cjson.encode(list), ' ', '\\u0020'))
end

local function pack_record(record)
  return table.concat({
    record.state, record.deadline_ms, record.fingerprint, record.logged, record.position, pack_list(record.rewards),
    record.at_ms, record.context, record.instead, record.recommendation,
  }, ' ')
end

local function is_open(record)
  return record.state == 'pending' or record.state == 'inactive'
end

-- The slate that was shown, or is to be, as JSON without any space.
local function slate_of(record)
  return record.instead == '-' and pack_list(cjson.decode(record.recommendation).slate) or record.instead
end

-- Tell whether two values are of equal numbers, or both "-".
local function is_same(value, other)
  return value == other or tonumber(value) and tonumber(value) == tonumber(other)
end

-- Return the text of a number that was computed here, as a float is written.
local function number_text(number)
  local shown = string.format('%.17g', number)
  return string.find(shown, '[.e]') and shown or shown .. '.0'
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
