-- Shared by all scripts: scripts.py puts it in front of each, behind `local data_version`, the version to write.
-- Reward values are text from end to end; only times, positions and counts are numbers here.
-- A script that announces has ARGV[1] = channel to announce on, or empty for what nobody listens to, and ARGV[2] =
-- announcement of the bandit.

local function text(integer)
  return string.format('%.0f', integer)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A script that errors is not rolled back, so nothing is written before all is computed and can be written: `write` keeps
-- a command, and `commit` examines the keys and sends all. What a script reads is as it was when the script began.
local writes = {}
local kinds_of = {
  HSET = 'hash', HDEL = 'hash', HINCRBY = 'hash', ZADD = 'zset', ZREM = 'zset', XADD = 'stream', XTRIM = 'stream',
  APPEND = 'string',
}

local function write(...)
  writes[#writes + 1] = {...}
end

local function refuse(key, problem)
  error({err = 'WRONGTYPE ' .. key .. ' ' .. (problem or 'holds something that was not written by this service')})
end

-- Return a whole number that a key holds, as it is.
local function whole(key, number)
  if not number or #number > 15 or not string.match(number, '^-?%d+$') then
    refuse(key)
  end
  return number
end

-- Raise an error unless each command can be carried out, but for an XADD behind the stream's end.
local function examine()
  local kinds = {}
  for _, one in ipairs(writes) do
    local command, key, field = one[1], one[2], one[3]
    local kind = kinds_of[command]
    if kind then
      kinds[key] = kinds[key] or redis.call('TYPE', key).ok
      if kinds[key] ~= kind and kinds[key] ~= 'none' then
        refuse(key)
      end
    end
    if command == 'HINCRBY' then
      whole(key, redis.call('HGET', key, field) or '0')
    elseif command == 'ZADD' then
      whole(key, tostring(field))
    end
  end
end

-- Carry out all that was written, and return `answer`. XADDs are first: of these only the first can fail.
local function commit(answer)
  examine()
  for pass = 1, 2 do
    for _, one in ipairs(writes) do
      if (one[1] == 'XADD') == (pass == 1) then
        redis.call(unpack(one))
      end
    end
  end
  writes = {}
  return answer
end

-- Announce, unless the bandit has one follower and the announcement's writer is it: the answer gives that one what was
-- appended. `meta` is given where it does.
local function announce(meta)
  local writer = meta and string.match(ARGV[2], ' (%S+)$')
  if ARGV[1] ~= '' and not (writer and redis.call('HGET', meta, 'only_follower') == writer) then
    write('PUBLISH', ARGV[1], ARGV[2])
  end
end

-- Return what a reader is given where events are passed over, by position.
local function skipped_of(meta, packed)
  local is_read, skipped = pcall(cjson.decode, packed or '{}')
  if not is_read or type(skipped) ~= 'table' then
    refuse(meta)
  end
  return skipped
end

local newest = nil  -- the log's newest position, once this script knows it
local newest_checksum = nil  -- that of the entry that this script appended last
local before = nil  -- the entry that the log ended with when this script began to append, if there was one

-- Return the first 16 hexadecimal digits of the SHA-1 of an entry's text without its checksum.
local function checksum_of(position, at_ms, deadline_ms, event)
  return string.sub(redis.sha1hex(position .. '-0 ' .. at_ms .. ' ' .. deadline_ms .. ' ' .. event), 1, 16)
end

-- Return a log's newest position and the entry there, or raise an error where entries at its end are gone: behind a gap
-- nobody would learn what is appended. None is there where all was trimmed, or an operator had the newest passed over.
local function end_of(meta, log)
  local position = whole(meta, redis.call('HGET', meta, 'log_position'))
  local entry = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  if entry and entry[1] == position .. '-0' then
    return position, entry
  end
  local bandit = redis.call('HMGET', meta, 'first_position', 'skipped')
  local is_trimmed = not entry and (tonumber(bandit[1]) or 0) > tonumber(position)
  if not is_trimmed and not (entry and skipped_of(meta, bandit[2])[position]) then
    refuse(log, 'does not end at position ' .. position)
  end
  return position, entry
end

-- Append an event behind the newest one, with a checksum of all that a reader is given of it. The deadline is left out of
-- most. Returns the position.
local function append(meta, log, at_ms, event, deadline_ms)
  if not newest then
    newest, before = end_of(meta, log)
  end
  newest = text(newest + 1)
  local checksum = checksum_of(newest, text(at_ms), deadline_ms or '-', event)
  newest_checksum = checksum
  local deadline = deadline_ms and {'deadline_ms', deadline_ms} or {}
  write('XADD', log, newest .. '-0', 'at_ms', text(at_ms), 'event', event, 'checksum', checksum, unpack(deadline))
  write('HSET', meta, 'log_position', newest)
  return newest
end

-- Return an entry of a log as one text, because a reader takes each value of a reply one by one:
-- "checksum position-0 at_ms deadline_ms event", with "-" for what it does not have.
local function entry_text(entry)
  local fields = entry[2]
  local at_ms, event, checksum, deadline_ms = fields[2], fields[4], fields[6], fields[8]
  return (checksum or '-') .. ' ' .. entry[1] .. ' ' .. (at_ms or '-') .. ' ' .. (deadline_ms or '-') .. ' ' .. (event or '-')
end

-- Return the checksum of the entry before what this script has appended, "-" where it is not known.
local function checksum_before(first)
  local follows = before and before[1] == text((tonumber(first) or 0) - 1) .. '-0'
  return follows and before[2][6] or '-'
end

-- Write something that changes nothing, and return an answer: for a call whose effect is there already. The server counts what
-- a connection wrote, so that without this it would confirm at once that replicas and disk have what another wrote.
local function confirm(meta, answer)
  write('HINCRBY', meta, 'log_position', 0)
  return commit(answer)
end

-- Return whether a field is not as it was read: `read` of a decision has its key and its name, and a text what it held.
local function is_changed(wanted)
  for i, read in ipairs(wanted.read or {}) do
    if (redis.call('HGET', KEYS[read[1]], read[2]) or '') ~= ARGV[wanted.first_read + i] then
      return true
    end
  end
end

-- Write the fields of a decision. Each has its key, its name, whether it is kept, and, if its value ends with the position of an
-- event, the place of that one among those that are appended from `first` on.
local function write_fields(wanted, first)
  for i, field in ipairs(wanted.fields or {}) do
    local place, name, is_kept, event = unpack(field)
    if is_kept then
      local value = ARGV[wanted.first_read + #wanted.read + i]
      write('HSET', KEYS[place], name, event and value .. text(first + event) or value)
    else
      write('HDEL', KEYS[place], name)
    end
  end
end
