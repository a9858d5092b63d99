#!lua
-- Close recommendations whose deadline has passed, and forget those closed long ago.
-- KEYS[1] meta              read: default reward and aggregation; written: pending
-- KEYS[2] log               written: Expired for each, Rewarded for one that has rewards, Lapsed for an inactive one
-- KEYS[3] recommendations   written: the records
-- KEYS[4] deadlines         read: what is due, and what is next; written: what is due goes
-- KEYS[5] closed            read: what was closed long ago; written: what is closed now
-- ARGV[3] how many to close at most, and to forget at most
-- ARGV[4] how long a closed record is kept, in ms
-- Returns {how many were closed, the earliest deadline that is still open}, the latter only if there is one.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0}
end
local keys = {meta = KEYS[1], log = KEYS[2], recommendations = KEYS[3], deadlines = KEYS[4], closed = KEYS[5]}
local at_ms = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(at_ms), 'LIMIT', 0, ARGV[3])
local records, count = {}, 0  -- all of them, before anything is written
for _, id in ipairs(due) do
  local readable, record = pcall(unpack_record, redis.call('HGET', KEYS[3], id))
  records[id] = readable and is_open(record) and record
end
for _, id in ipairs(due) do
  if records[id] then
    settle(keys, id, records[id], at_ms)
    count = count + 1
  else  -- nobody knows what was shown, so nothing can end it; the others still do
    redis.call('ZREM', KEYS[4], id)
  end
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
return {count, redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]}
