#!lua flags=no-writes
-- Read part of a log as of one moment.
-- KEYS[1] meta   read: incarnation, revision, first and newest position, and what stands where events are passed over
-- KEYS[2] log    read: the events
-- ARGV[1] position to start at
-- ARGV[2] how many events at most; there are fewer, but one at least, once they have several megabytes
-- Returns {'ok', incarnation, first_position, log_position, entries, skipped positions, revision} or {'no_bandit'}. An entry
-- is one text.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'first_position', 'log_position', 'skipped', 'revision')
if not bandit[1] then
  return {'no_bandit'}
end
local skipped, positions = skipped_of(KEYS[1], bandit[4]), {}
for position in pairs(skipped) do
  positions[#positions + 1] = position
end
local entries, start, left, bytes = {}, tonumber(ARGV[1]), tonumber(ARGV[2]), 0

local function add(entry)
  entries[#entries + 1] = entry
  bytes, start, left = bytes + string.len(entry), start + 1, left - 1
end

-- Add what stands where events are gone, and were passed over.
local function add_skipped()
  while left > 0 and skipped[text(start)] do
    add(skipped[text(start)])
  end
end

-- A few at a time: imported rows make events of up to four megabytes.
while start >= tonumber(bandit[2]) and left > 0 and bytes < 8388608 do
  local found = redis.call('XRANGE', KEYS[2], text(start) .. '-0', '+', 'COUNT', math.min(left, 8))
  for _, entry in ipairs(found) do
    if #positions == 0 then
      add(entry_text(entry))
    elseif entry[1] == text(start) .. '-0' and skipped[text(start)] then
      add(skipped[text(start)])
    else
      add_skipped()
      if left > 0 then
        add(entry_text(entry))
      end
    end
  end
  if #found < 8 then
    add_skipped()
    break
  end
end
return {'ok', bandit[1], bandit[2], bandit[3], entries, positions, bandit[5]}
