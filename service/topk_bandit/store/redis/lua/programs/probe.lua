#!lua
-- Write something and remove it again, so that the write can be timed and never leaves anything behind.
-- KEYS[1] probe   written and removed
-- ARGV[1] what is written
-- Returns {'ok'}.

write('HSET', KEYS[1], 'probe', ARGV[1])
write('UNLINK', KEYS[1])
return commit({'ok'})
