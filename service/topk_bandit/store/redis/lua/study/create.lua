#!lua
-- Create a study under a reservation that has not lapsed.
-- KEYS[1] meta        written: the study
-- KEYS[2] log         written: StudyCreated
-- KEYS[3..] others    read: nothing may be there, unless the study is
-- ARGV[1] incarnation
-- ARGV[2] digest of the settings
-- ARGV[3] shape
-- ARGV[4] StudyCreated
-- ARGV[5] budget
-- ARGV[6] when the index entry was reserved, in ms
-- ARGV[7] how long a reservation holds, in ms
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
  'incarnation', ARGV[1], 'settings_digest', ARGV[2], 'shape', ARGV[3], 'created_ms', text(at_ms), 'log_position', 0,
  'budget', ARGV[5], 'asked', 0, 'answered', 0, 'imported', 0, 'attempt', 1, 'state', 'designing', 'progress', '', 'failure', '')
newest = '0'
append(KEYS[1], KEYS[2], at_ms, ARGV[4])
commit()
return {'created', redis.call('HGETALL', KEYS[1])}
