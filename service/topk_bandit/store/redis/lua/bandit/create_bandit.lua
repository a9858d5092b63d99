#!lua
-- Create a bandit under a reservation that has not lapsed.
-- KEYS[1] meta        written: the bandit
-- KEYS[2] log         written: BanditCreated
-- KEYS[3..] others    nothing is there, unless the record of an earlier bandit was lost
-- ARGV[3] incarnation
-- ARGV[4] settings
-- ARGV[5] BanditCreated
-- ARGV[6] when the index entry was reserved, in ms
-- ARGV[7] how long a reservation holds, in ms
-- ARGV[8..] the settings that scripts need, each its name and its value
-- Returns {'created', meta}, {'exists', meta}, {'left'} or {'lapsed'}.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return confirm(KEYS[1], {'exists', redis.call('HGETALL', KEYS[1])})
end
if redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
  return {'left'}
end
local at_ms = now_ms()
if at_ms >= ARGV[6] + ARGV[7] then
  return {'lapsed'}
end
write('HSET', KEYS[1],
  'incarnation', ARGV[3], 'settings', ARGV[4], 'revision', 1, 'created_ms', text(at_ms), 'items_position', 0,
  'log_position', 0, 'first_position', 1, 'snapshot_position', 0, 'pending', 0, 'late_rewards', 0,
  'clamped_rewards', 0, 'lost_events', 0, 'lost_rewards', 0, 'imported_position', 0, 'import_parts', 0, 'closed', '1 0 1 0 1 0 1 0 1',
  unpack(ARGV, 8))
newest = '0'
append(KEYS[1], KEYS[2], at_ms, ARGV[5])
announce()
commit()
return {'created', redis.call('HGETALL', KEYS[1])}
