#!lua
-- List a study whose design is about to begin.
-- KEYS[1] designs   written: the entry, with the time
-- ARGV[1] the study, as it is listed

write('ZADD', KEYS[1], text(now_ms()), ARGV[1])
commit()
