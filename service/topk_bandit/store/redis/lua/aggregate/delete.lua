#!lua flags=allow-oom
-- Remove one incarnation of a bandit or a study, or what is left of one; allowed when memory is used up, because it frees some.
-- KEYS[1] meta       read: incarnation; removed
-- KEYS[2..] others   removed
-- ARGV[3] incarnation; "" for what is left of one whose record is gone
-- Returns how many keys were removed: an incarnation that is gone already is as good as removed.

if (redis.call('HGET', KEYS[1], 'incarnation') or '') ~= ARGV[3] then
  return 0
end
local removed = redis.call('EXISTS', unpack(KEYS))
write('UNLINK', unpack(KEYS))
announce()
return commit(removed)
