#!lua flags=allow-oom
-- Put a bandit or a study that exists back into its tenant's index, which has lost it.
-- KEYS[1] index          written: the entry
-- KEYS[2] reservations   read and written: "incarnation at_ms", unless somebody has reserved the entry
-- ARGV[1] id
-- ARGV[2] incarnation

write('ZADD', KEYS[1], 0, ARGV[1])
if not redis.call('HGET', KEYS[2], ARGV[1]) then
  write('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. text(now_ms()))
end
commit()
