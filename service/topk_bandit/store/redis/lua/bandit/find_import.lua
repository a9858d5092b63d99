#!lua flags=no-writes
-- Tell how far an import is, and what became of a part.
-- KEYS[1] meta      read: whether there is a bandit
-- KEYS[2] imports   read: the import, and the part
-- ARGV[1] import id
-- ARGV[2] first row, ARGV[3] fingerprint of the part; row "-" for none
-- Returns {'at', next_row, accepted}, {'repeated', next_row, accepted, position}, {'no_bandit'}, {'import_reused', row} or
-- {'import_gap', row}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
return find_import(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
