#!lua flags=allow-oom
-- Take a study off the list whose design has ended, unless it was listed anew meanwhile, or so lately that its design may
-- be about to begin.
-- KEYS[1] designs   written: the entry goes
-- ARGV[1] the study, as it is listed
-- ARGV[2] when it was listed, as the caller saw it
-- ARGV[3] how long an entry stays at least, in ms

if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] and now_ms() >= ARGV[2] + ARGV[3] then
  write('ZREM', KEYS[1], ARGV[1])
  commit()
end
