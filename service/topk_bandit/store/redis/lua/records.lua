-- A recommendation's record while it is open; and after that what closed.lua reads looks the same, but for ids of rewards
-- and the slate, of which it has digests. For the scripts whose KEYS are those of `BanditKeys.of_slates`.

local keys = {
  meta = KEYS[1], log = KEYS[2], recommendations = KEYS[3], deadlines = KEYS[4], closed = {unpack(KEYS, 5, 8)},
}

-- Packed: "state deadline_ms fingerprint logged position rewards at_ms context instead recommendation". The state is inactive,
-- pending, rewarded, expired, lapsed or void, with a "+" behind it where the slate is set aside. Logged is the position of its Recommended, "0" if nobody knows it, and the
-- position that of the newest Rewarded or RewardAmended, "0" before. At_ms and context are "-" for one that arrived closed.
-- Instead is the slate that was shown, "-" for the recommended one.
-- Of the rewards each is {id, value as it was posted, value as it counts or "-", position in the log or "0"}.
local function unpack_record(packed)
  local state, aside, deadline_ms, fingerprint, logged, position, rewards, at_ms, context, instead, recommendation =
    string.match(packed, '^(%l+)(%+?) (%d+) (%x+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return {
    state = state, aside = aside == '+', deadline_ms = deadline_ms, fingerprint = fingerprint, logged = logged, position = position,
    rewards = cjson.decode(rewards), at_ms = at_ms, context = context, instead = instead, recommendation = recommendation,
  }
end

-- Return a list as JSON without any space.
local function pack_list(list)
  return #list == 0 and '[]' or (string.gsub(cjson.encode(list), ' ', '\\u0020'))
end

local function pack_record(record)
  return table.concat({
    record.aside and record.state .. '+' or record.state, record.deadline_ms, record.fingerprint, record.logged, record.position, pack_list(record.rewards),
    record.at_ms, record.context, record.instead, record.recommendation,
  }, ' ')
end

local function is_open(record)
  return record.state == 'pending' or record.state == 'inactive'
end

-- The slate that was shown, or is to be, as JSON without any space.
local function slate_of(record)
  if record.instead ~= '-' then
    return record.instead
  end
  record.recommended = record.recommended or pack_list(cjson.decode(record.recommendation).slate)
  return record.recommended
end
