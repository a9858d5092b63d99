#!lua flags=allow-oom
-- Note that a worker runs, and return which data version is in force; the first worker of a store decides it.
-- KEYS[1] programs   read: data version, workers; written: this one, if it can write so; those silent for long go
-- ARGV[1] worker
-- ARGV[2] newest data version that it writes
-- ARGV[3] data version of a store that has none yet
-- ARGV[4] how long a silent worker is kept, in ms
-- ARGV[5] what an operator knows it by
-- ARGV[6] id of a store that has none yet
-- Returns the data version, the id of the store, when this worker was noted last, '' for never, and the time, in ms.

local at_ms = now_ms()
local noted = redis.call('HGETALL', KEYS[1])
local in_force
local id
local before = ''
for i = 1, #noted, 2 do
  if noted[i] == 'data_version' then
    in_force = whole(KEYS[1], noted[i + 1])
  elseif noted[i] == '~store' then
    id = string.match(noted[i + 1], ' (%S+)$')
  elseif noted[i] == ARGV[1] then
    before = string.match(noted[i + 1], '^%d+ (%d+) ') or ''
  elseif tonumber(string.match(noted[i + 1], '^%d+ (%d+) ') or 0) < at_ms - ARGV[4] then
    write('HDEL', KEYS[1], noted[i])
  end
end
if not in_force then
  in_force = ARGV[3]
  write('HSET', KEYS[1], 'data_version', in_force)
end
if tonumber(in_force) <= tonumber(ARGV[2]) then
  write('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. text(at_ms) .. ' ' .. ARGV[5])
  if not id then
    id = ARGV[6]
    -- Programs of before take each field for a worker: this one can read all versions, and is never silent for long.
    write('HSET', KEYS[1], '~store', '999 9999999999999 ' .. id)
  end
end
return commit({in_force, id or '', before, text(at_ms)})
