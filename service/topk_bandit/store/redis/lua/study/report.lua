#!lua
-- Take a design's lease anew, and note how far it is.
-- KEYS[1] meta    read: which attempt is under way; written: progress
-- KEYS[2] lease   written: owner and until when
-- ARGV[1] incarnation
-- ARGV[2] attempt
-- ARGV[3] owner
-- ARGV[4] how long the lease holds, in ms
-- ARGV[5] progress, empty to leave it as it is
-- Returns 1, or 0 when the attempt is not under way or somebody else holds its lease.

local study = redis.call('HMGET', KEYS[1], 'incarnation', 'attempt', 'state')
if study[1] ~= ARGV[1] or study[2] ~= ARGV[2] or study[3] ~= 'designing' then
  return 0
end
local at_ms = now_ms()
local lease = redis.call('HMGET', KEYS[2], 'owner', 'until_ms')
if lease[1] and lease[1] ~= ARGV[3] and at_ms < tonumber(lease[2]) then
  return 0
end
write('HSET', KEYS[2], 'owner', ARGV[3], 'until_ms', text(at_ms + ARGV[4]))
if ARGV[5] ~= '' then
  write('HSET', KEYS[1], 'progress', ARGV[5])
end
return commit(1)
