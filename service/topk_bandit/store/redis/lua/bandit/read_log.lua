#!lua flags=no-writes
-- Read part of a log as of one moment.
-- KEYS[1] meta   read: incarnation, first and newest position
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most
-- Returns {'ok', incarnation, first_position, log_position, entries} or {'no_bandit'}. An entry is one text, because a
-- reader takes each value of a reply one by one: "position-0 at_ms deadline_ms event", with "-" for no deadline.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'first_position', 'log_position')
if not bandit[1] then
  return {'no_bandit'}
end
local entries = {}
if tonumber(ARGV[1]) >= tonumber(bandit[2]) and tonumber(ARGV[2]) > 0 then
  for i, entry in ipairs(redis.call('XRANGE', KEYS[2], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])) do
    local at_ms, event, deadline_ms = entry[2][2], entry[2][4], entry[2][6]
    entries[i] = entry[1] .. ' ' .. (at_ms or '-') .. ' ' .. (deadline_ms or '-') .. ' ' .. (event or '-')
  end
end
return {'ok', bandit[1], bandit[2], bandit[3], entries}
