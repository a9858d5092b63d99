#!lua
-- Close recommendations whose deadline has passed, and forget those closed long ago.
-- KEYS[1] meta              written: pending
-- KEYS[2] log               written: Expired for each
-- KEYS[3] recommendations   written: the records
-- KEYS[4] deadlines         read: what is due, and what is next; written: what is due goes
-- KEYS[5] closed            read: what was closed long ago; written: what is closed now
-- ARGV[3] how many to close at most, and to forget at most
-- ARGV[4] how long a closed record is kept, in ms
-- Returns {how many were closed, the earliest deadline that is still open}, the latter only if there is one.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0}
end
local keys = {meta = KEYS[1], recommendations = KEYS[3], deadlines = KEYS[4], closed = KEYS[5]}
local at_ms = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(at_ms), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(due) do
  local record = unpack_record(redis.call('HGET', KEYS[3], id))
  append_expired(KEYS[1], KEYS[2], id, record, at_ms)
  close_record(keys, id, record, 'expired', at_ms)
end
local kept_ms = text(at_ms - ARGV[4])
local old = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. kept_ms, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do
  redis.call('HDEL', KEYS[3], id)
  redis.call('ZREM', KEYS[5], id)
end
if #due > 0 then
  announce()
end
return {#due, redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]}
