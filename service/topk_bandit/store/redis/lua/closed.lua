-- What is kept of recommendations that are closed, so that calls about them that are sent again are told from others: some
-- 50 bytes each, in four slices that follow each other in time. Each is forgotten as a whole; see `turn` in expire_due.lua.
--
-- Meta has "newest at_ms at_ms at_ms at_ms" of them in `closed`: which one records go into, from 1 on, and when the newest one
-- began, or another one ended; 0 for one that has none. A slice is a hash of buckets, from 0 on without gaps, and a bucket
-- its entries, joined: 9 bytes of the SHA-1 of a recommendation's id, and a MessagePack list of
--   a string of state and whether another slate was shown (1 byte), digest of the request (4), of the slate that was shown
--   (3), and deadline_ms (6), logged, by how much the position is behind that, 0 for none,
--   and for each reward a list of 8 bytes of the SHA-1 of its id, "" for none; its value as it was posted; as it counts, true for
--   the same and false for none; its position, true for the record's.
-- Buckets are split one after the other, one whenever an entry comes into one that is full: so a write is never more than a few
-- buckets, however many records there are (linear hashing).
local SLICES, DIGEST_BYTES, FULL_BYTES = 4, 9, 1024
local STATES = {'rewarded', 'expired', 'lapsed', 'void'}
local OTHER_SLATE = 8

-- Return the first bytes of the SHA-1 of a text.
local function digest_of(told)
  local digits = redis.sha1hex(told)
  return struct.pack('>I4I4I1', tonumber(string.sub(digits, 1, 8), 16), tonumber(string.sub(digits, 9, 16), 16),
    tonumber(string.sub(digits, 17, 18), 16))
end

-- Return so many digits of a hexadecimal number, as a number.
local function start_of(digits, count)
  return tonumber(string.sub(digits, 1, count), 16)
end

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

local function has_fingerprint(record, fingerprint)
  return record.fingerprint == (record.filed and start_of(fingerprint, 8) or fingerprint)
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
    struct.pack('>I1I4I3I6', state + (record.instead == '-' and 0 or OTHER_SLATE), fingerprint, slate,
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

local function unpack_filed(bucket, from)
  local _, told = cmsgpack.unpack_one(bucket, from - 1 + DIGEST_BYTES)
  local kind, fingerprint, slate, deadline_ms = struct.unpack('>I1I4I3I6', told[1])
  local position = text(told[3] == 0 and 0 or told[2] + told[3])
  local rewards = {}
  for i = 4, #told do
    local key, posted, counted, at = unpack(told[i])
    local shown_value = counted == true and posted or counted
    rewards[#rewards + 1] = {
      key, number_text(posted), shown_value and number_text(shown_value) or '-', at == true and position or text(at),
    }
  end
  return {
    filed = true, state = STATES[kind % OTHER_SLATE], deadline_ms = text(deadline_ms), fingerprint = fingerprint, slate = slate,
    instead = kind < OTHER_SLATE and '-' or 'other', logged = text(told[2]), position = position, rewards = rewards,
  }
end

-- Return where an entry ends.
local function end_of_entry(bucket, from)
  local after = cmsgpack.unpack_one(bucket, from - 1 + DIGEST_BYTES)
  return after == -1 and #bucket or after
end

-- Return what is left of a bucket without the entry of a digest.
local function without(bucket, digest)
  local from = string.find(bucket, digest, 1, true)
  if not from then
    return bucket
  end
  return string.sub(bucket, 1, from - 1) .. string.sub(bucket, end_of_entry(bucket, from) + 1)
end

local function half_of(count)
  local _, exponent = math.frexp(count)
  return 2 ^ (exponent - 1)
end

-- Return which of so many buckets an entry is in.
local function bucket_of(digest, count)
  local number, half = struct.unpack('>I4', digest), half_of(count)
  local place = number % (2 * half)
  return place < count and place or number % half
end

local slices = nil

local function read_slices()
  if not slices then
    local told = {string.match(redis.call('HGET', keys.meta, 'closed') or '', '^([1-4]) (%d+) (%d+) (%d+) (%d+)$')}
    slices = {newest = tonumber(told[1] or refuse(keys.meta)), at_ms = {}}
    for i = 1, SLICES do
      slices.at_ms[i] = tonumber(told[i + 1])
    end
  end
  return slices
end

local function write_slices()
  local told = {text(slices.newest)}
  for i = 1, SLICES do
    told[i + 1] = text(slices.at_ms[i])
  end
  write('HSET', keys.meta, 'closed', table.concat(told, ' '))
end

-- Write a slice that has nothing. It is there all the same, once there was one: while a slot moves to another server of a
-- cluster, that one refuses calls with a key that is not there.
local function write_empty(key)
  write('UNLINK', key)
  write('HSET', key, '0', '')
end

-- Do something with what a key holds, or raise an error about it.
local function try(key, read, ...)
  local done, answer = pcall(read, ...)
  return done and answer or refuse(key)
end

local function find_filed(id)
  local digest, newest = digest_of(id), read_slices().newest
  for back = 0, SLICES - 1 do
    local place = (newest - 1 - back) % SLICES + 1
    local key = keys.closed[place]
    local count = slices.at_ms[place] > 0 and redis.call('HLEN', key) or 0
    local bucket = count > 0 and (redis.call('HGET', key, text(bucket_of(digest, count))) or refuse(key)) or ''
    local from = string.find(bucket, digest, 1, true)
    if from then
      return try(key, unpack_filed, bucket, from)
    end
  end
end

-- Return a recommendation's record, open or closed, or nil.
local function find_record(id)
  local packed = redis.call('HGET', keys.recommendations, id)
  if packed then
    return unpack_record(packed)
  end
  return find_filed(id)
end

-- Answer for a recommendation id that is recorded already. Of one that is closed the log knows the slate, while it goes back
-- so far.
local function recall(id, record, fingerprint)
  if not has_fingerprint(record, fingerprint) then
    return {'request_id_reused'}
  end
  if not record.filed then
    return {'repeated', record.deadline_ms, record.recommendation}
  end
  local entry = redis.call('XRANGE', keys.log, record.logged .. '-0', record.logged .. '-0')[1]
  return entry and {'logged', entry_text(entry)} or {'slate_gone', id}
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
    read[place] = redis.call('HGET', key, text(place)) or refuse(key)
    return read[place]
  end})
  if count == 0 then
    buckets[0], count = '', 1
  end
  for _, entry in ipairs(closing) do
    local place = bucket_of(entry, count)
    buckets[place] = without(buckets[place], string.sub(entry, 1, DIGEST_BYTES)) .. entry
    if #buckets[place] > FULL_BYTES then
      count = split(buckets, count)
    end
  end
  return buckets
end

-- Write what is left of all that was closed.
local function file_closed(at_ms)
  if #closing == 0 then
    return
  end
  local newest = read_slices().newest
  local key, count = keys.closed[newest], 0
  if slices.at_ms[newest] > 0 then
    count = redis.call('HLEN', key)
  else
    for i = 1, SLICES do
      if slices.at_ms[i] == 0 then
        write_empty(keys.closed[i])
      end
    end
    slices.at_ms[newest] = at_ms
    write_slices()
  end
  for place, bucket in pairs(try(key, put, key, count)) do
    write('HSET', key, text(place), bucket)
  end
end
