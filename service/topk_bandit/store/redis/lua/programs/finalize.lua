#!lua
-- Put a data version in force, unless a worker runs that can't read it.
-- KEYS[1] programs   read: data version, workers; written: data version
-- ARGV[1] data version
-- ARGV[2] how lately a worker that runs was heard of, in ms
-- Returns {'none'} for a store that no worker has used, {'held', what an operator knows each older worker by ...}, or
-- {'ok', the data version that was in force}; then the greater of the two is.

local at_ms = now_ms()
local noted = redis.call('HGETALL', KEYS[1])
local in_force
local older = {}
for i = 1, #noted, 2 do
  if noted[i] == 'data_version' then
    in_force = whole(KEYS[1], noted[i + 1])
  elseif noted[i] ~= '~store' then
    local newest, heard_ms, about = string.match(noted[i + 1], '^(%d+) (%d+) (.*)$')
    if newest and tonumber(newest) < tonumber(ARGV[1]) and tonumber(heard_ms) >= at_ms - ARGV[2] then
      older[#older + 1] = about
    end
  end
end
if not in_force then
  return {'none'}
end
if tonumber(in_force) < tonumber(ARGV[1]) then
  if #older > 0 then
    return {'held', unpack(older)}
  end
  write('HSET', KEYS[1], 'data_version', ARGV[1])
end
return commit({'ok', in_force})
