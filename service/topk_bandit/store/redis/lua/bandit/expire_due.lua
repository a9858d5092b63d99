#!lua
-- Close recommendations whose deadline has passed, and forget those closed long ago.
-- KEYS[1] meta              read: default reward and aggregation, closed; written: pending, closed
-- KEYS[2] log               written: Expired for each, Rewarded for one that has rewards, Lapsed for an inactive one
-- KEYS[3] recommendations   written: records of what is due go
-- KEYS[4] deadlines         read: what is due, and what is next; written: what is due goes
-- KEYS[5..8] closed         written: what is kept of what is closed now; what was closed long ago goes
-- ARGV[3] how many to close at most
-- ARGV[4] how long a closed record is kept, in ms
-- Returns {how many were closed, how many had arrived closed, the earliest deadline that is still open}, the last only if there
-- is one.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0, 0}
end
local at_ms = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(at_ms), 'LIMIT', 0, ARGV[3])
local count, arrived = 0, 0
-- What all of them need: without it none is taken for one that can't be ended.
local bandit = redis.call('HMGET', KEYS[1], 'default_reward', 'reward_aggregation', 'closed')
if not bandit[2] or not bandit[1] or (bandit[1] ~= 'null' and not tonumber(bandit[1])) then
  refuse(KEYS[1])
end
read_slices(bandit[3])
if #due > 0 then
  newest = end_of(KEYS[1], KEYS[2])
end

local function end_record(id, packed)
  local record = unpack_record(packed)
  if is_open(record) then
    settle(id, record, at_ms)
    return 1, 0
  end
  close_record(id, record, record.state)
  return 0, 1
end

-- Forget the slices that ended long ago, and begin a new one if the newest has had its time: records are kept for as long as
-- they have to be, and a third of that longer at most. A time that is still to come is of a clock that was set back since:
-- what waits for it would be kept until then, and so would all that comes after.
local function turn(kept_ms)
  local last, before = slices.newest, table.concat(slices.at_ms, ' ')
  for i = 1, SLICES do
    slices.at_ms[i] = math.min(slices.at_ms[i], at_ms)
    if i ~= last and slices.at_ms[i] > 0 and slices.at_ms[i] < at_ms - kept_ms then
      write_empty(i)
    end
  end
  local next = last % SLICES + 1
  if slices.at_ms[last] > 0 and at_ms - slices.at_ms[last] >= kept_ms / (SLICES - 1) and slices.at_ms[next] == 0 then
    slices.at_ms[last], slices.newest = at_ms, next
  end
  if table.concat(slices.at_ms, ' ') ~= before then
    write_slices()
  end
end

for _, id in ipairs(due) do
  local written, newest_before = #writes, newest
  local readable, ended, filed = pcall(end_record, id, redis.call('HGET', KEYS[3], id))
  if readable then
    count, arrived = count + ended, arrived + filed
  else  -- nobody knows what was shown, so nothing can end it; the others still do
    for i = #writes, written + 1, -1 do
      writes[i] = nil
    end
    newest = newest_before
    write('ZREM', KEYS[4], id)
  end
end
file_closed(at_ms)
turn(tonumber(ARGV[4]))
if count > 0 then
  announce()
end
commit()
return {count, arrived, redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]}
