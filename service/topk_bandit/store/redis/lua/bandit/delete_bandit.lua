#!lua flags=allow-oom
-- Remove one incarnation of a bandit; allowed when memory is used up, because it frees some.
-- KEYS[1] meta       read: incarnation; removed
-- KEYS[2..] others   removed
-- ARGV[3] incarnation
-- Returns nothing: an incarnation that is gone already is as good as removed.

if redis.call('HGET', KEYS[1], 'incarnation') == ARGV[3] then
  write('UNLINK', unpack(KEYS))
  announce()
  commit()
end
