#!lua
-- Append the answers of a part of an import, once.
-- KEYS[1] meta      read: incarnation; read and written: imported
-- KEYS[2] log       written: AnswersImported
-- KEYS[3] imports   read and written: the import, and the part
-- ARGV[1] incarnation
-- ARGV[2] import id
-- ARGV[3] first row, ARGV[4] fingerprint of the part
-- ARGV[5] next row, ARGV[6] how many answers there are
-- ARGV[7] AnswersImported
-- ARGV[8] how many imported answers a study can have
-- Returns {'recorded', next_row, accepted, position}, {'repeated', ...}, {'no_study'}, {'import_reused', row},
-- {'import_gap', row} or {'study_imported'}.

local study = redis.call('HMGET', KEYS[1], 'incarnation', 'imported')
if study[1] ~= ARGV[1] then
  return {'no_study'}
end
local found = find_import(KEYS[3], ARGV[2], ARGV[3], ARGV[4])
if found[1] == 'repeated' then
  return confirm(KEYS[1], found)
elseif found[1] ~= 'at' then
  return found
end
if study[2] + ARGV[6] > tonumber(ARGV[8]) then
  return {'study_imported'}
end

local position = append(KEYS[1], KEYS[2], now_ms(), ARGV[7])
write('HINCRBY', KEYS[1], 'imported', ARGV[6])
write('HSET', KEYS[3],
  ARGV[2], ARGV[5] .. ' ' .. text(found[3] + ARGV[6]),
  ARGV[2] .. '\n' .. ARGV[3], table.concat({ARGV[4], ARGV[5], ARGV[6], position}, ' '))
return commit({'recorded', ARGV[5], ARGV[6], position})
