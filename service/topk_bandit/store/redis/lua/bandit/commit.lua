#!lua
-- Commit a decision about a bandit, if what it was made from is as it was.
-- KEYS[1..]   `BanditKeys.of_slates`, or `BanditKeys.of_decisions` where there are fields, or `BanditKeys.of_visitor`
-- ARGV[3] MessagePack of what `topk_bandit.store.redis.journal` puts together
-- ARGV[4..] texts: of the events, then of the slates that are open, then what fields were read to hold, and what they are to hold.
-- In the text of a slate a number between two bytes of value 1 stands for the position of an event, by its place, a byte of
-- value 2 for the time, and one of value 3 for the deadline.
-- Returns {'committed', the time, position of the first event, checksum of the event before it, and that of the last one},
-- {'stale'} or {'no_bandit'}.

local wanted = cmsgpack.unpack(ARGV[3])
local bandit = known_bandit()
if not bandit then
  return {'no_bandit'}
end
local at_ms = now_ms()

local function is_stale()
  for place, value in pairs(wanted.same) do
    if bandit[place] ~= value then
      return true
    end
  end
  for _, limit in ipairs(wanted.most) do
    if tonumber(bandit[limit[1]]) > limit[2] then
      return true
    end
  end
  for _, slate in ipairs(wanted.slates) do
    if stamp_of(slate.id) ~= slate.stamp then
      return true
    end
  end
  for _, lost in ipairs(wanted.lost) do
    local record = redis.call('HGET', keys.recommendations, lost.id)
    if (record and redis.sha1hex(record) or '') ~= lost.stamp then
      return true
    end
  end
  return is_changed(wanted) or wanted.before_ms and at_ms >= wanted.before_ms
end

-- A stale decision writes too, but changes nothing: WAIT counts what a connection wrote, and would else confirm at once that
-- replicas and disk have what another connection wrote.
if is_stale() then
  return confirm(keys.meta, {'stale'})
end

if wanted.mends then  -- also where entries at the log's end are gone: they are passed over one by one
  newest = whole(keys.meta, bandit[6])
end
local deadline_ms = wanted.wait_ms and text(at_ms + wanted.wait_ms)
local first
for i = 1, wanted.events do
  local position = append(keys.meta, keys.log, at_ms, ARGV[3 + i], deadline_ms)
  first = first or position
end

local function position_of(place)
  return text(first + place)
end

local function settled(position)
  return position >= 0 and position or first - 1 - position
end

local next_text = 3 + wanted.events
local function keep_open(slate)
  next_text = next_text + 1
  local packed = string.gsub(ARGV[next_text], '\1(%d+)\1', position_of)
  packed = string.gsub(string.gsub(packed, '\2', text(at_ms)), '\3', deadline_ms or '')
  write('HSET', keys.recommendations, slate.id, packed)
  local due_ms = slate.due_ms or slate.stamp == '' and at_ms + wanted.due_after_ms
  if due_ms then
    write('ZADD', keys.deadlines, text(due_ms), slate.id)
  end
end

for _, slate in ipairs(wanted.slates) do
  if slate.closed then
    close_record(slate.id, slate.closed, settled)
  else
    keep_open(slate)
  end
end
write_fields(wanted, first)
if wanted.visitor then  -- what visitors saw goes by itself, and so does their list, some whenever one comes
  local until_ms, visitors, seen = wanted.seen_until_ms, KEYS[12], KEYS[13]
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', visitors, '-inf', text(at_ms), 'LIMIT', 0, 100)) do
    write('ZREM', visitors, gone)
  end
  local last = redis.call('ZRANGE', visitors, -1, -1, 'WITHSCORES')[2] or 0
  write('ZADD', visitors, text(until_ms), wanted.visitor)
  write('PEXPIREAT', visitors, text(math.max(until_ms, tonumber(last))))
  write('PEXPIREAT', seen, text(until_ms))
end
for _, lost in ipairs(wanted.lost) do
  write('ZREM', keys.deadlines, lost.id)
end
for field, count in pairs(wanted.counts) do
  write('HINCRBY', keys.meta, field, count)
end
if #writes == 0 then
  return confirm(keys.meta, {'committed', text(at_ms), '0', '', ''})
end
file_closed(at_ms)
if first then
  announce(keys.meta)
end
return commit({'committed', text(at_ms), first or '0', checksum_before(first), newest_checksum or ''})
