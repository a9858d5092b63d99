-- What is kept of recommendations that are closed, so that calls about them that are sent again are distinguished from others: some
-- 50 bytes each, in four slices that follow each other in time. Each is forgotten as a whole; see `turn` in filing.lua.
--
-- Meta has of them in `closed`: which one records go into, from 1 on; and of each when it began, if it is that one, or when it
-- ended, 0 if it has no records; and how many buckets it has. A slice is a hash of buckets, from 0 on, and a bucket its
-- entries, joined: 9 bytes of the SHA-1 of a recommendation's id, and a MessagePack list of
--   a string of state, whether another slate was shown, whether it was set aside, and its group (1 byte), digest of the request (4), of the slate that was shown
--   (3), and deadline_ms (6), logged, by how much the position is behind that, 0 for none,
--   and for each reward a list of 8 bytes of the SHA-1 of its id, "" for none; its value as it was posted; as it counts, true for
--   the same and false for none; its position, true for the record's; and what it says of items, if it does: as posted and as it
--   counts, a digest of 8 bytes each, all 255 for none, and of each item a number of 8 bytes.
-- Buckets are split one after the other, one whenever an entry comes into one that is full: so a write is never more than a few
-- buckets, however many records there are (linear hashing).
local SLICES, DIGEST_BYTES = 4, 9

local keys = {
  meta = KEYS[1], log = KEYS[2], recommendations = KEYS[3], deadlines = KEYS[4], closed = {unpack(KEYS, 5, 8)},
  items = KEYS[9],
}

-- Return the text of a number that was computed here, as a float is written.
local function number_text(number)
  local shown = string.format('%.17g', number)
  return string.find(shown, '[.e]') and shown or shown .. '.0'
end

-- Return the first bytes of the SHA-1 of a text.
local function digest_of(value)
  local digits = redis.sha1hex(value)
  return struct.pack('>I4I4I1', tonumber(string.sub(digits, 1, 8), 16), tonumber(string.sub(digits, 9, 16), 16),
    tonumber(string.sub(digits, 17, 18), 16))
end

-- Return what an entry says, as texts.
local function unpack_filed(entry)
  local _, left = cmsgpack.unpack_one(entry, DIGEST_BYTES)
  local kind, fingerprint, slate, deadline_ms = struct.unpack('>I1I4I3I6', left[1])
  local position = text(left[3] == 0 and 0 or left[2] + left[3])
  local filed = {text(kind), text(fingerprint), text(slate), text(deadline_ms), text(left[2]), position}
  for i = 4, #left do
    local key, posted, counted, at, items = unpack(left[i])
    local shown = counted == true and posted or counted
    filed[#filed + 1] = {key, number_text(posted), shown and number_text(shown) or '-', at == true and position or text(at), items}
  end
  return filed
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
local function read_slices(closed)
  local newest, others = string.match(closed or '', '^([1-4])( .*)$')
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

-- Return the entry of a recommendation that is closed, or nil.
local function find_filed(id)
  local digest = digest_of(id)
  for back = 0, SLICES - 1 do
    local place = (slices.newest - 1 - back) % SLICES + 1
    if slices.at_ms[place] > 0 then
      local key = keys.closed[place]
      local bucket = redis.call('HGET', key, text(bucket_of(digest, slices.counts[place]))) or ''
      local from = try(key, place_of, bucket, digest)
      if from then
        return string.sub(bucket, from, try(key, end_of_entry, bucket, from)), key
      end
    end
  end
end

-- Return a bandit's incarnation, revision, settings, and positions of items, imports, the log's newest and its first, or nil for
-- none.
local function known_bandit()
  local bandit = redis.call('HMGET', keys.meta, 'incarnation', 'revision', 'settings', 'items_position', 'imported_position',
    'log_position', 'first_position', 'closed')
  if bandit[1] then
    read_slices(bandit[8])
    return bandit
  end
end

-- Return {'open', its record}, {'filed', the stamp of its entry, what that says, its event}, or {'none'} of a recommendation. The
-- event is empty where it is not asked for, or not kept any more.
local function known_slate(id, recalls)
  local packed = redis.call('HGET', keys.recommendations, id)
  if packed then
    return {'open', packed}
  end
  local entry, key = find_filed(id)
  if not entry then
    return {'none'}
  end
  local filed = try(key, unpack_filed, entry)
  local logged = recalls and redis.call('XRANGE', keys.log, filed[5] .. '-0', filed[5] .. '-0')[1]
  return {'filed', redis.sha1hex(entry), filed, logged and entry_text(logged) or ''}
end

-- Return what a record is known to be unchanged by: empty for none.
local function stamp_of(id)
  local record = redis.call('HGET', keys.recommendations, id) or find_filed(id)
  return record and redis.sha1hex(record) or ''
end
