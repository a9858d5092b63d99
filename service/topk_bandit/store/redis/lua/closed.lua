-- What is kept of recommendations that are closed, so that calls about them that are sent again are told from others: some
-- 50 bytes each, in four slices that follow each other in time. Each is forgotten as a whole; see `turn` in expire_due.lua.
--
-- Meta has of them in `closed`: which one records go into, from 1 on; and of each when it began, if it is that one, or when it
-- ended, 0 if it has no records; and how many buckets it has. A slice is a hash of buckets, from 0 on, and a bucket its
-- entries, joined: 9 bytes of the SHA-1 of a recommendation's id, and a MessagePack list of
--   a string of state, whether another slate was shown and whether it was set aside (1 byte), digest of the request (4), of the slate that was shown
--   (3), and deadline_ms (6), logged, by how much the position is behind that, 0 for none,
--   and for each reward a list of 8 bytes of the SHA-1 of its id, "" for none; its value as it was posted; as it counts, true for
--   the same and false for none; its position, true for the record's.
-- Buckets are split one after the other, one whenever an entry comes into one that is full: so a write is never more than a few
-- buckets, however many records there are (linear hashing).
local SLICES, DIGEST_BYTES = 4, 9
local STATES = {'rewarded', 'expired', 'lapsed', 'void'}
local OTHER_SLATE, ASIDE = 8, 16

-- Return the text of a number that was computed here, as a float is written.
local function number_text(number)
  local shown = string.format('%.17g', number)
  return string.find(shown, '[.e]') and shown or shown .. '.0'
end

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

local function has_fingerprint(record, fingerprint)
  return record.fingerprint == (record.filed and start_of(fingerprint, 8) or fingerprint)
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
    filed = true, aside = kind >= ASIDE, state = STATES[kind % OTHER_SLATE], deadline_ms = text(deadline_ms), fingerprint = fingerprint, slate = slate,
    instead = kind % ASIDE < OTHER_SLATE and '-' or 'other', logged = text(told[2]), position = position, rewards = rewards,
  }
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

local slices = {at_ms = {}, counts = {}}

-- Read `closed` of meta, which a script reads with the rest that it needs.
local function read_slices(told)
  local newest, others = string.match(told or '', '^([1-4])( .*)$')
  for at_ms, count in string.gmatch(others or '', ' (%d+) (%d+)') do
    slices.at_ms[#slices.at_ms + 1], slices.counts[#slices.counts + 1] = tonumber(at_ms), tonumber(count)
  end
  slices.newest = #slices.counts == SLICES and tonumber(newest) or refuse(keys.meta)
end

-- Do something with what a key holds, or raise an error about it.
local function try(key, read, ...)
  local done, answer = pcall(read, ...)
  if not done then
    refuse(key)
  end
  return answer
end

-- Return where an entry ends.
local function end_of_entry(bucket, from)
  local after = cmsgpack.unpack_one(bucket, from - 1 + DIGEST_BYTES)
  return after == -1 and #bucket or after
end

-- Return where the entry of a digest begins, or nil. Its bytes may be inside of another entry too: whoever posts a reward
-- chooses eight of them.
local function place_of(bucket, digest)
  local from, found = 1, string.find(bucket, digest, 1, true)
  while found do
    while from < found do
      from = end_of_entry(bucket, from) + 1
    end
    if from == found then
      return from
    end
    found = string.find(bucket, digest, from, true)
  end
end

local function find_filed(id)
  local digest = digest_of(id)
  for back = 0, SLICES - 1 do
    local place = (slices.newest - 1 - back) % SLICES + 1
    if slices.at_ms[place] > 0 then
      local key = keys.closed[place]
      local bucket = redis.call('HGET', key, text(bucket_of(digest, slices.counts[place]))) or ''
      local from = try(key, place_of, bucket, digest)
      if from then
        return try(key, unpack_filed, bucket, from)
      end
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
