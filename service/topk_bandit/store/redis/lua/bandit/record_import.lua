#!lua
-- Append the rows of a part of an import, once.
-- KEYS[1] meta      read: incarnation, items_position; import_parts; written: imported_position, import_parts,
--                   clamped_rewards
-- KEYS[2] log       written: Imported, if there are rows
-- KEYS[3] imports   read and written: the import, and the part
-- ARGV[3] import id
-- ARGV[4] first row, ARGV[5] fingerprint of the part
-- ARGV[6] next row, ARGV[7] how many rows are learned from, ARGV[8] how many rewards of these are clamped
-- ARGV[9] Imported, or empty
-- ARGV[10] incarnation, ARGV[11] items_position that the caller looked at
-- ARGV[12] how many parts a bandit can have
-- Returns {'recorded', next_row, accepted, position}, {'repeated', ...}, {'stale'}, {'no_bandit'}, {'import_reused', row},
-- {'import_gap', row} or {'import_count'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'items_position', 'import_parts')
if not bandit[1] then
  return {'no_bandit'}
end
local found = find_import(KEYS[3], ARGV[3], ARGV[4], ARGV[5])
if found[1] == 'repeated' then
  return confirm(KEYS[1], found)
elseif found[1] ~= 'at' then
  return found
end
if bandit[1] ~= ARGV[10] or bandit[2] ~= ARGV[11] then
  return {'stale'}
end
if tonumber(bandit[3]) >= tonumber(ARGV[12]) then
  return {'import_count'}
end

local position = '0'
if ARGV[9] ~= '' then
  position = append(KEYS[1], KEYS[2], now_ms(), ARGV[9])
  write('HSET', KEYS[1], 'imported_position', position)
  write('HINCRBY', KEYS[1], 'clamped_rewards', ARGV[8])
  announce()
end
write('HINCRBY', KEYS[1], 'import_parts', 1)
write('HSET', KEYS[3],
  ARGV[3], ARGV[6] .. ' ' .. text(found[3] + ARGV[7]),
  ARGV[3] .. '\n' .. ARGV[4], table.concat({ARGV[5], ARGV[6], ARGV[7], position}, ' '))
return commit({'recorded', ARGV[6], ARGV[7], position})
