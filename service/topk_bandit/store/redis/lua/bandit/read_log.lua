#!lua flags=no-writes
-- Read part of a log as of one moment.
-- KEYS[1] meta   read: incarnation, first and newest position
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most; there are fewer, but one at least, once they have several megabytes
-- Returns {'ok', incarnation, first_position, log_position, entries} or {'no_bandit'}. An entry is one text.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'first_position', 'log_position')
if not bandit[1] then
  return {'no_bandit'}
end
local entries, start, left, bytes = {}, tonumber(ARGV[1]), tonumber(ARGV[2]), 0
-- A few at a time: imported rows make events of up to four megabytes.
while start >= tonumber(bandit[2]) and left > 0 and bytes < 8388608 do
  local found = redis.call('XRANGE', KEYS[2], text(start) .. '-0', '+', 'COUNT', math.min(left, 8))
  for _, entry in ipairs(found) do
    entries[#entries + 1] = entry_text(entry)
    bytes = bytes + string.len(entries[#entries])
  end
  start, left = start + #found, #found < 8 and 0 or left - #found
end
return {'ok', bandit[1], bandit[2], bandit[3], entries}
