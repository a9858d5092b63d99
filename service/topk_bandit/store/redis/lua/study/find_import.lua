#!lua flags=no-writes
-- Tell how far an import of answers is.
-- KEYS[1] meta      read: whether there is a study
-- KEYS[2] imports   read: the import
-- ARGV[1] import id
-- Returns {'at', next_row, accepted} or {'no_study'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_study'}
end
return find_import(KEYS[2], ARGV[1], '-', '')
