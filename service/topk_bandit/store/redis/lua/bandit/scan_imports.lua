#!lua flags=no-writes
-- Read some of the parts of imports.
-- KEYS[1] meta      read: is there such a bandit
-- KEYS[2] imports   read: the parts, and how far each import is
-- ARGV[1] cursor, 0 at first
-- Returns {'ok', next cursor, entries as they are} or {'no_bandit'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
local found = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', 1000)
return {'ok', found[1], found[2]}
