#!lua flags=no-writes
-- Read part of a log as of one moment.
-- KEYS[1] meta   read: incarnation, first and newest position
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most
-- Returns {'ok', incarnation, first_position, log_position, entries} or {'no_bandit'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'first_position', 'log_position')
if not bandit[1] then
  return {'no_bandit'}
end
local entries = {}
if tonumber(ARGV[1]) >= tonumber(bandit[2]) and tonumber(ARGV[2]) > 0 then
  entries = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
end
return {'ok', bandit[1], bandit[2], bandit[3], entries}
