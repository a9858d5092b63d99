#!lua flags=no-writes
-- Read a study and part of its log as of one moment.
-- KEYS[1] meta   read
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most; there are fewer, but four at least, once they have 64 KiB
-- Returns {'ok', meta, entries} or {'no_study'}. An entry is one text.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_study'}
end
local entries, start, left, bytes = {}, tonumber(ARGV[1]), tonumber(ARGV[2]), 0
-- A few at a time: an event of imported answers has up to a thousand of them, and decoding holds up its reader.
while start > 0 and left > 0 and bytes < 65536 do
  local found = redis.call('XRANGE', KEYS[2], text(start) .. '-0', '+', 'COUNT', math.min(left, 4))
  for _, entry in ipairs(found) do
    entries[#entries + 1] = entry_text(entry)
    bytes = bytes + string.len(entries[#entries])
  end
  start, left = start + #found, #found < 4 and 0 or left - #found
end
return {'ok', redis.call('HGETALL', KEYS[1]), entries}
