#!lua flags=no-writes
-- Read a study and part of its log as of one moment.
-- KEYS[1] meta   read
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most
-- Returns {'ok', meta, entries} or {'no_study'}. An entry is one text: "position-0 at_ms event".

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_study'}
end
local entries = {}
if tonumber(ARGV[1]) > 0 and tonumber(ARGV[2]) > 0 then
  for i, entry in ipairs(redis.call('XRANGE', KEYS[2], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])) do
    entries[i] = entry[1] .. ' ' .. (entry[2][2] or '-') .. ' ' .. (entry[2][4] or '-')
  end
end
return {'ok', redis.call('HGETALL', KEYS[1]), entries}
