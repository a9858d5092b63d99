-- How what is left of a recommendation gets to where closed.lua finds it.
local FULL_BYTES = 1024

-- Return what is left of a bucket without the entry of a digest.
local function without(bucket, digest)
  local from = place_of(bucket, digest)
  if not from then
    return bucket
  end
  return string.sub(bucket, 1, from - 1) .. string.sub(bucket, end_of_entry(bucket, from) + 1)
end

local function write_slices()
  local closed = text(slices.newest)
  for i = 1, SLICES do
    closed = closed .. ' ' .. text(slices.at_ms[i]) .. ' ' .. text(slices.counts[i])
  end
  write('HSET', keys.meta, 'closed', closed)
end

-- Write a slice that has nothing. It is there all the same, once there was one: while a slot moves to another server of a
-- cluster, that one refuses calls with a key that is not there.
local function write_empty(place)
  slices.at_ms[place], slices.counts[place] = 0, 1
  write('UNLINK', keys.closed[place])
  write('HSET', keys.closed[place], '0', '')
end

local function bytes_of(digits)
  return (string.gsub(digits, '..', function(byte) return string.char(tonumber(byte, 16)) end))
end

local closing = {} -- entries that are to be filed

-- Take a record out of those that are open; `file_closed` keeps what is left of it. That is a list: its state, and the digests of
-- its request and of the slate that was shown; deadline_ms; logged; position; and for each reward the digest of its id, and the
-- rest as an entry has it, but for bytes in hexadecimal. `settled` gives the positions that were not known when it was put together.
local function close_record(id, record, settled)
  write('ZREM', keys.deadlines, id)
  write('HDEL', keys.recommendations, id)
  local state, fingerprint, slate, deadline_ms, logged, position = unpack(record)
  position = settled(position)
  local left = {struct.pack('>I1I4I3I6', state, fingerprint, slate, deadline_ms), logged, position == 0 and 0 or position - logged}
  for i = 7, #record do
    local key, posted, counted, at, items = unpack(record[i])
    at = settled(at)
    left[#left + 1] = {bytes_of(key), posted, counted, at == position or at, items and bytes_of(items)}
  end
  closing[#closing + 1] = digest_of(id) .. cmsgpack.pack(left)
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

-- Put entries into the newest slice, in the place of those of the same records there. Older slices may still have some, which
-- `find_filed` does not reach any more.
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

-- Forget the slices that ended long ago, and begin a new one if the newest has had its time: records are kept for as long as
-- they have to be, and a third of that longer at most. A time that is still to come is of a clock that was set back since:
-- what waits for it would be kept until then, and so would all that comes after.
local function turn(at_ms, kept_ms)
  local last, before = slices.newest, table.concat(slices.at_ms, ' ')
  for i = 1, SLICES do
    slices.at_ms[i] = math.min(slices.at_ms[i], at_ms)
    if i ~= last and slices.at_ms[i] > 0 and slices.at_ms[i] < at_ms - kept_ms then
      write_empty(i)
    end
  end
  local next = last % SLICES + 1
  if slices.at_ms[last] > 0 and at_ms - slices.at_ms[last] >= kept_ms / (SLICES - 1) and slices.at_ms[next] == 0 then
    slices.at_ms[last], slices.newest = at_ms, next
  end
  if table.concat(slices.at_ms, ' ') ~= before then
    write_slices()
  end
end
