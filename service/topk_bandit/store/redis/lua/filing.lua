-- How what is left of a recommendation gets to where closed.lua finds it.
local FULL_BYTES = 1024

local function slate_digest(slate)
  return start_of(redis.sha1hex(slate), 6)
end

-- Return the id that a reward has among those of a record.
local function reward_key(record, reward_id)
  return (record.filed and reward_id ~= '') and string.sub(digest_of(reward_id), 1, 8) or reward_id
end

local function find_reward(record, reward_id)
  local sought = reward_key(record, reward_id)
  for _, reward in ipairs(record.rewards) do
    if reward[1] == sought then
      return reward
    end
  end
end

-- Tell whether a slate was shown, as JSON without any space, or the recommended one for nil.
local function has_shown(record, slate)
  if not slate then
    return record.instead == '-'
  end
  return slate_digest(slate) == (record.filed and record.slate or slate_digest(slate_of(record)))
end

local function pack_filed(record)
  local state = 0
  for number, one in ipairs(STATES) do
    state = one == record.state and number or state
  end
  local fingerprint = record.filed and record.fingerprint or start_of(record.fingerprint, 8)
  local slate = record.filed and record.slate or slate_digest(slate_of(record))
  local logged, position = tonumber(record.logged), tonumber(record.position)
  local told = {
    struct.pack('>I1I4I3I6', state + (record.instead == '-' and 0 or OTHER_SLATE) + (record.aside and ASIDE or 0), fingerprint, slate,
      tonumber(record.deadline_ms)),
    logged, position == 0 and 0 or position - logged,
  }
  for _, reward in ipairs(record.rewards) do
    local posted, counted, at = tonumber(reward[2]), tonumber(reward[3]), tonumber(reward[4])
    told[#told + 1] = {
      record.filed and reward[1] or (reward[1] ~= '' and string.sub(digest_of(reward[1]), 1, 8) or ''), posted,
      counted == posted or counted or false, at == position or at,
    }
  end
  return cmsgpack.pack(told)
end

-- Return what is left of a bucket without the entry of a digest.
local function without(bucket, digest)
  local from = place_of(bucket, digest)
  if not from then
    return bucket
  end
  return string.sub(bucket, 1, from - 1) .. string.sub(bucket, end_of_entry(bucket, from) + 1)
end

local function write_slices()
  local told = text(slices.newest)
  for i = 1, SLICES do
    told = told .. ' ' .. text(slices.at_ms[i]) .. ' ' .. text(slices.counts[i])
  end
  write('HSET', keys.meta, 'closed', told)
end

-- Write a slice that has nothing. It is there all the same, once there was one: while a slot moves to another server of a
-- cluster, that one refuses calls with a key that is not there.
local function write_empty(place)
  slices.at_ms[place], slices.counts[place] = 0, 1
  write('UNLINK', keys.closed[place])
  write('HSET', keys.closed[place], '0', '')
end

local closing = {} -- entries that are to be filed

-- Take a record out of those that are open, in a state that ends it; `file_closed` keeps what is left of it.
local function close_record(id, record, state)
  if record.state == 'pending' then
    write('HINCRBY', keys.meta, 'pending', -1)
  end
  if not record.filed then
    write('ZREM', keys.deadlines, id)
    write('HDEL', keys.recommendations, id)
  end
  record.state = state
  closing[#closing + 1] = digest_of(id) .. pack_filed(record)
end

-- Split the bucket whose turn it is; `buckets` has those that are read, by their number.
local function split(buckets, count)
  local place = count - half_of(count)
  local bucket, left, moved, from = buckets[place], {}, {}, 1
  while from <= #bucket do
    local to = end_of_entry(bucket, from)
    local entry = string.sub(bucket, from, to)
    local side = bucket_of(entry, count + 1) == place and left or moved
    side[#side + 1] = entry
    from = to + 1
  end
  buckets[place], buckets[count] = table.concat(left), table.concat(moved)
  return count + 1
end

-- Put entries into the newest slice, in the place of those of the same records there; in older slices these are never seen
-- again.
local function put(key, count)
  local buckets = setmetatable({}, {__index = function(read, place)
    read[place] = redis.call('HGET', key, text(place)) or ''
    return read[place]
  end})
  for _, entry in ipairs(closing) do
    local place = bucket_of(entry, count)
    buckets[place] = without(buckets[place], string.sub(entry, 1, DIGEST_BYTES)) .. entry
    if #buckets[place] > FULL_BYTES then
      count = split(buckets, count)
    end
  end
  return {buckets = buckets, count = count}
end

-- Write what is left of all that was closed.
local function file_closed(at_ms)
  if #closing == 0 then
    return
  end
  local newest = slices.newest
  local key, began = keys.closed[newest], slices.at_ms[newest] > 0
  if not began then
    for i = 1, SLICES do
      if slices.at_ms[i] == 0 then
        write_empty(i)
      end
    end
    slices.at_ms[newest] = at_ms
  end
  local filled = try(key, put, key, slices.counts[newest])
  for place, bucket in pairs(filled.buckets) do
    write('HSET', key, text(place), bucket)
  end
  if not began or filled.count > slices.counts[newest] then
    slices.counts[newest] = filled.count
    write_slices()
  end
end
