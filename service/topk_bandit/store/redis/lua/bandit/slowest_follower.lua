#!lua flags=no-writes
-- Find the follower that knows least of the items.
-- KEYS[1] meta        read: position of the newest item change
-- KEYS[2] followers   read: all of them
-- ARGV[1] how recently one must have been heard of to count, in ms
-- Returns {'ok', position} or {'no_bandit'}.

local slowest = redis.call('HGET', KEYS[1], 'items_position')
if not slowest then
  return {'no_bandit'}
end
local since_ms = now_ms() - ARGV[1]
local known = nil
local followers = redis.call('HGETALL', KEYS[2])
for i = 1, #followers, 2 do
  local position, heard_ms = string.match(followers[i + 1], '^(%d+) (%d+)$')
  if tonumber(heard_ms) >= since_ms and (not known or tonumber(position) < tonumber(known)) then
    known = position
  end
end
return {'ok', known or slowest}
