#!lua
-- Take the lease of an unfinished design.
-- KEYS[1] meta    read: where the design stands
-- KEYS[2] lease   written: owner and until when
-- ARGV[1] owner
-- ARGV[2] how long the lease holds, in ms
-- Returns {'claimed', meta}, {'held'} by somebody else, {'ended'} or {'no_study'}.

local state = redis.call('HGET', KEYS[1], 'state')
if not state then
  return {'no_study'}
end
if state ~= 'designing' then
  return {'ended'}
end
local at_ms = now_ms()
local lease = redis.call('HMGET', KEYS[2], 'owner', 'until_ms')
if lease[1] and lease[1] ~= ARGV[1] and at_ms < tonumber(lease[2]) then
  return {'held'}
end
write('HSET', KEYS[2], 'owner', ARGV[1], 'until_ms', text(at_ms + ARGV[2]))
commit()
return {'claimed', redis.call('HGETALL', KEYS[1])}
