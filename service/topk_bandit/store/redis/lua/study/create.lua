#!lua
-- Create a study under a reservation that has not lapsed, or try the design again of one that is there.
-- KEYS[1] meta        written: the study
-- KEYS[2] log         written: StudyCreated or DesignRestarted
-- KEYS[3..] others    read: nothing may be there, unless the study is
-- ARGV[1] incarnation
-- ARGV[2] digest of the settings
-- ARGV[3] shape
-- ARGV[4] StudyCreated
-- ARGV[5] budget
-- ARGV[6] when the index entry was reserved, in ms; 0 when it was not
-- ARGV[7] how long a reservation holds, in ms
-- ARGV[8] how often a design is tried at most
-- Returns {'ok', meta}, {'study_exists'}, {'study_attempts', most}, {'left'} or {'lapsed'}.

local study = redis.call('HMGET', KEYS[1], 'settings_digest', 'state', 'attempt')
local at_ms = now_ms()
if not study[1] then
  if redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
    return {'left'}
  end
  if at_ms >= ARGV[6] + ARGV[7] then
    return {'lapsed'}
  end
  write('HSET', KEYS[1],
    'incarnation', ARGV[1], 'settings_digest', ARGV[2], 'shape', ARGV[3], 'created_ms', text(at_ms), 'log_position', 0,
    'budget', ARGV[5], 'asked', 0, 'answered', 0, 'imported', 0, 'attempt', 1, 'state', 'designing', 'progress', '', 'failure', '')
  newest = '0'
  append(KEYS[1], KEYS[2], at_ms, ARGV[4])
  commit()
  return {'ok', redis.call('HGETALL', KEYS[1])}
end
if study[1] ~= ARGV[2] then
  return {'study_exists'}
end
if study[2] == 'cancelled' or study[2] == 'failed' then
  if tonumber(study[3]) >= tonumber(ARGV[8]) then
    return {'study_attempts', ARGV[8]}
  end
  local attempt = text(study[3] + 1)
  append(KEYS[1], KEYS[2], at_ms, head('design_restarted') .. '"attempt":' .. attempt .. '}')
  write('HSET', KEYS[1], 'attempt', attempt, 'state', 'designing', 'progress', '', 'failure', '')
end
commit()
return confirm(KEYS[1], {'ok', redis.call('HGETALL', KEYS[1])})
