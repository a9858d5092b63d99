#!lua flags=no-writes
-- Read part of the log of a bandit or a study that is being restored.
-- KEYS[1] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most
-- Returns the entries, each one text.

local entries = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])) do
  entries[#entries + 1] = entry_text(entry)
end
return entries
