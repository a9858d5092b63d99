#!lua flags=no-writes
-- Find index entries whose reservation has lapsed: if what they stand for is missing, nobody is
-- about to create it.
-- KEYS[1] reservations   read: all
-- ARGV[1] how long a reservation holds, in ms
-- Returns ids, each with its reservation behind it.

local lapsed = {}
local reservations = redis.call('HGETALL', KEYS[1])
local lapses_ms = now_ms() - ARGV[1]
for i = 1, #reservations, 2 do
  if tonumber(string.match(reservations[i + 1], '(%d+)$')) <= lapses_ms then
    lapsed[#lapsed + 1] = reservations[i]
    lapsed[#lapsed + 1] = reservations[i + 1]
  end
end
return lapsed
