#!lua
-- Commit a decision about a study, if what it was made from is as it was.
-- KEYS[1..6]   `StudyKeys.all`
-- ARGV[1] MessagePack of what `topk_bandit.store.redis.study_journal` puts together
-- ARGV[2..] texts: of the events, then what fields were read to hold, and what they are to hold
-- Returns {'committed', position of the first event}, {'stale'} or {'no_study'}.

local wanted = cmsgpack.unpack(ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_study'}
end
if is_changed(wanted) then
  return confirm(KEYS[1], {'stale'})
end
local at_ms, first = now_ms(), nil
for i = 1, wanted.events do
  local position = append(KEYS[1], KEYS[2], at_ms, ARGV[1 + i])
  first = first or position
end
write_fields(wanted, first)
for field, count in pairs(wanted.counts) do
  write('HINCRBY', KEYS[1], field, count)
end
if wanted.owner == '' then
  write('DEL', KEYS[6])
elseif wanted.owner then
  write('HSET', KEYS[6], 'owner', wanted.owner, 'until_ms', text(at_ms + wanted.lease_ms))
end
return confirm(KEYS[1], {'committed', first or '0'})
