#!lua
-- Note that a recommendation was shown, or another slate instead of it.
-- KEYS[1] meta              read: incarnation, only_follower, closed; written: pending, closed
-- KEYS[2] log               written: Activated, or Lapsed when the deadline passed unnoticed
-- KEYS[3] recommendations   written: the record; it goes when it lapsed
-- KEYS[4] deadlines         written: the deadline of one that lapsed goes
-- KEYS[5..8] closed         read: is it closed; written: what is kept of one that lapsed
-- KEYS[9] items             read: are there such items
-- ARGV[3] recommendation id
-- ARGV[4..] ids of the items that were shown; none for those that were recommended
-- Returns {'activated', position}, {'duplicate', 0}, {'late', 0}, {'no_bandit'}, {'no_recommendation', id}, {'no_item', id},
-- {'wrong_slate', its size} or {'activation_exists', id}. Where an event was appended, it comes last.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'closed')
if not bandit[1] then
  return {'no_bandit'}
end
read_slices(bandit[2])
local id = ARGV[3]
local record, at_ms = find_record(id), now_ms()
if not record then
  return {'no_recommendation', id}
end
local slate = #ARGV > 3 and pack_list({unpack(ARGV, 4)}) or nil
if record.state == 'lapsed' then
  return confirm(KEYS[1], {'late', '0'})
end
if record.state ~= 'inactive' then
  if not has_shown(record, slate) then
    return {'activation_exists', id}
  end
  return confirm(KEYS[1], {'duplicate', '0'})
end
if slate and slate ~= slate_of(record) then
  local recommended = cjson.decode(record.recommendation).slate
  if #ARGV - 3 ~= #recommended then
    return {'wrong_slate', text(#recommended)}
  end
  for i = 4, #ARGV do
    if not redis.call('HGET', KEYS[9], ARGV[i]) then
      return {'no_item', ARGV[i]}
    end
  end
  record.instead = slate
end

if at_ms >= tonumber(record.deadline_ms) then
  settle(id, record, at_ms)
  file_closed(at_ms)
  announce(KEYS[1])
  return commit_and_tell(KEYS[1], {'late', '0'})
end
local position = append_activated(id, record, at_ms)
write('HSET', KEYS[3], id, pack_record(record))
announce(KEYS[1])
return commit_and_tell(KEYS[1], {'activated', position})
