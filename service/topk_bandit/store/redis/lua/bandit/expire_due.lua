#!lua
-- Close recommendations whose deadline has passed, and forget those closed long ago.
-- KEYS[1] meta              read: default reward and aggregation; written: pending
-- KEYS[2] log               written: Expired for each, Rewarded for one that has rewards, Lapsed for an inactive one
-- KEYS[3] recommendations   written: the records
-- KEYS[4] deadlines         read: what is due, and what is next; written: what is due goes
-- KEYS[5] closed            read: what was closed long ago; written: what is closed now
-- ARGV[3] how many to close at most, and to forget at most
-- ARGV[4] how long a closed record is kept, in ms
-- Returns {how many were closed, how many forgotten, the earliest deadline that is still open}, the last only if there is
-- one.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0, 0}
end
local keys = {meta = KEYS[1], log = KEYS[2], recommendations = KEYS[3], deadlines = KEYS[4], closed = KEYS[5]}
local at_ms = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(at_ms), 'LIMIT', 0, ARGV[3])
local count = 0
-- What all of them need: without it none is taken for one that can't be ended.
local bandit = redis.call('HMGET', KEYS[1], 'default_reward', 'reward_aggregation')
if not bandit[2] or not bandit[1] or (bandit[1] ~= 'null' and not tonumber(bandit[1])) then
  refuse(KEYS[1])
end
if #due > 0 then
  newest = end_of(KEYS[1], KEYS[2])
end

local function end_record(id, packed)
  local record = unpack_record(packed)
  if is_open(record) then
    settle(keys, id, record, at_ms)
    return true
  end
end

for _, id in ipairs(due) do
  local written, newest_before = #writes, newest
  local readable, ended = pcall(end_record, id, redis.call('HGET', KEYS[3], id))
  if readable and ended then
    count = count + 1
  else  -- nobody knows what was shown, so nothing can end it; the others still do
    for i = #writes, written + 1, -1 do
      writes[i] = nil
    end
    newest = newest_before
    write('ZREM', KEYS[4], id)
  end
end
local kept_ms = text(at_ms - ARGV[4])
local old = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. kept_ms, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do
  write('HDEL', KEYS[3], id)
  write('ZREM', KEYS[5], id)
end
if #due > 0 then
  announce()
end
commit()
return {count, #old, redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]}
