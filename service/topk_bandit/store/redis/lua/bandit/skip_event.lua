#!lua
-- Have the event at a position passed over, and tell anew what it could have told.
-- KEYS[1] meta   written: skipped, which has by position what a reader is given; and revision, because no correction of an
--                earlier reward may come after it; items_position
-- KEYS[2] log    written: what is told anew; the event itself stays, since a stream's entry can't be exchanged
-- ARGV[3] position
-- ARGV[4] EventSkipped
-- ARGV[5] the time that it has there
-- ARGV[6], ARGV[7], ARGV[8] incarnation, revision and items_position when the caller looked
-- ARGV[9] SettingsChanged, ARGV[10] ItemsChanged; empty for what is not told anew
-- ARGV[11] how many positions may be skipped
-- Returns {'ok'}, {'stale'}, {'no_bandit'}, {'event_not_skippable', position} or {'skip_count'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'revision', 'items_position', 'first_position', 'log_position',
  'skipped')
if not bandit[1] then
  return {'no_bandit'}
end
local skipped, left, count = skipped_of(KEYS[1], bandit[6]), {}, 0
if skipped[ARGV[3]] then
  return confirm(KEYS[1], {'ok'})
end
if bandit[1] ~= ARGV[6] or bandit[2] ~= ARGV[7] or bandit[3] ~= ARGV[8] then
  return {'stale'}
end
local position = tonumber(ARGV[3])
if position == 1 or position < tonumber(bandit[4]) or position > tonumber(bandit[5]) then
  return {'event_not_skippable', ARGV[3]}
end
for at, entry in pairs(skipped) do
  if tonumber(at) >= tonumber(bandit[4]) then
    left[at], count = entry, count + 1
  end
end
if count >= tonumber(ARGV[11]) then
  return {'skip_count'}
end
left[ARGV[3]] = checked_text(ARGV[3], ARGV[5], '-', ARGV[4])
local at_ms = now_ms()
newest = whole(KEYS[1], bandit[5])  -- also where entries at the log's end are gone: they are passed over one by one
if ARGV[9] ~= '' then
  append(KEYS[1], KEYS[2], at_ms, ARGV[9])
end
if ARGV[10] ~= '' then
  write('HSET', KEYS[1], 'items_position', append(KEYS[1], KEYS[2], at_ms, ARGV[10]))
end
write('HSET', KEYS[1], 'skipped', cjson.encode(left))
write('HINCRBY', KEYS[1], 'revision', 1)
announce()
return commit({'ok'})
