#!lua
-- Keep a snapshot beside another one, then trim the log, up to that one at most, if a model was read from it.
-- KEYS[1] meta         read: incarnation, newest snapshot; written: newest snapshot, first_position
-- KEYS[2] log          trimmed
-- KEYS[3] snapshot 0   written, if it is the slot
-- KEYS[4] snapshot 1   written, if it is the slot
-- ARGV[1] incarnation
-- ARGV[2] position of the snapshot
-- ARGV[3] the snapshot, framed
-- ARGV[4] position of the newest snapshot when the caller looked
-- ARGV[5] slot to write: 0 or 1
-- ARGV[6] position up to which to trim, at most that of the snapshot in the other slot; 0 for nothing
-- Returns 1 when it was kept, else 0.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'snapshot_position', 'log_position', 'first_position')
if bandit[1] ~= ARGV[1] or bandit[2] ~= ARGV[4] then
  return 0
end
if tonumber(ARGV[2]) <= tonumber(bandit[2]) or tonumber(ARGV[2]) > tonumber(bandit[3]) then
  return 0
end
write('SET', KEYS[3 + ARGV[5]], ARGV[3])
write('HSET', KEYS[1], 'snapshot_position', ARGV[2])
local first_position = ARGV[6] + 1
if first_position > tonumber(bandit[4]) then
  write('HSET', KEYS[1], 'first_position', text(first_position))
  write('XTRIM', KEYS[2], 'MINID', '=', text(first_position) .. '-0')
end
return commit(1)
