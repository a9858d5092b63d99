#!lua
-- Note how far a follower knows the items, and that it was heard of.
-- KEYS[1] meta        read: position of the newest item change; written: only_follower, empty where there are several
-- KEYS[2] followers   written: this one; those silent for long go
-- ARGV[1] follower
-- ARGV[2] the items position that it knows
-- ARGV[3] how long a silent follower is kept, in ms
-- Returns {'ok', items_position} or {'no_bandit'}.

local items_position, known = unpack(redis.call('HMGET', KEYS[1], 'items_position', 'only_follower'))
if not items_position then
  return {'no_bandit'}
end
local at_ms = now_ms()
local followers = redis.call('HGETALL', KEYS[2])
local only = ARGV[1]
for i = 1, #followers, 2 do
  local heard_ms = string.match(followers[i + 1], '^%d+ (%d+)$')
  if tonumber(heard_ms) < at_ms - ARGV[3] then
    write('HDEL', KEYS[2], followers[i])
  elseif followers[i] ~= ARGV[1] then
    only = ''
  end
end
write('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. text(at_ms))
if known ~= only then
  write('HSET', KEYS[1], 'only_follower', only)
end
return commit({'ok', items_position})
