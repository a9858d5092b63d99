#!lua
-- Add items, change their availability, retire them.
-- KEYS[1] meta      read: item capacity; written: items_position
-- KEYS[2] log       written: ItemsChanged
-- KEYS[3] items     written: the state of each item that differs; those that are retired go
-- KEYS[4] retired   read and written: digests of the ids of retired items
-- ARGV[3] how many items are upserted
-- ARGV[4..] for each its id and state; then the ids to retire
-- A state is "available" or "unavailable", and for an item with features a space and these, as JSON that nothing here reads.
-- Returns {'ok', meta}, {'no_bandit'}, {'item_capacity', capacity}, {'item_retired', id} or {'no_item', id}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
local capacity = redis.call('HGET', KEYS[1], 'item_capacity')
local count = redis.call('HLEN', KEYS[3])
local states = {}     -- id -> state as it will be, or 'absent', for the ids looked at
local differing = {}  -- ids in states whose state differs from what is stored, or did on the way
local upserted, retired = {}, {}

-- Where an id is remembered once it is retired: a bucket, and eight bytes in it. One in 10^14 new ids is taken for one of
-- 10^5 retired ones.
local function remembered(id)
  local hex = redis.sha1hex(id)
  local digest = string.gsub(string.sub(hex, 4, 19), '..', function(byte) return string.char(tonumber(byte, 16)) end)
  return string.sub(hex, 1, 3), digest
end

local function is_retired(id)
  local bucket, digest = remembered(id)
  local digests = redis.call('HGET', KEYS[4], bucket) or ''
  local found = string.find(digests, digest, 1, true)
  while found and found % 8 ~= 1 do
    found = string.find(digests, digest, found + 1, true)
  end
  return found ~= nil
end

local function look(id)
  if not states[id] then
    states[id] = redis.call('HGET', KEYS[3], id) or (is_retired(id) and 'retired' or 'absent')
  end
  return states[id]
end

local function change(id, state)
  states[id] = state
  differing[id] = true
end

local first_retired = 4 + 2 * ARGV[3]
for i = 4, first_retired - 1, 2 do
  local id, state = ARGV[i], ARGV[i + 1]
  local known = look(id)
  if known == 'retired' then
    return {'item_retired', id}
  end
  if known == 'absent' then
    if count >= tonumber(capacity) then
      return {'item_capacity', capacity}
    end
    count = count + 1
  end
  if known ~= state then
    change(id, state)
    local available, features = string.match(state, '^(%l+) ?(.*)$')
    upserted[#upserted + 1] = '[' .. cjson.encode(id) .. (available == 'available' and ',true' or ',false')
      .. (features == '' and '' or ',') .. features .. ']'
  end
end
for i = first_retired, #ARGV do
  local id = ARGV[i]
  local known = look(id)
  if known == 'absent' then
    return {'no_item', id}
  end
  if known ~= 'retired' then
    change(id, 'retired')
    retired[#retired + 1] = cjson.encode(id)
  end
end

if next(differing) then
  local event = head('items_changed') .. '"upserted":[' .. table.concat(upserted, ',')
    .. '],"retired":[' .. table.concat(retired, ',') .. ']}'
  local position = append(KEYS[1], KEYS[2], now_ms(), event)
  local buckets = {}
  for id in pairs(differing) do
    if states[id] == 'retired' then
      local bucket, digest = remembered(id)
      write('HDEL', KEYS[3], id)
      buckets[bucket] = (buckets[bucket] or redis.call('HGET', KEYS[4], bucket) or '') .. digest
    else
      write('HSET', KEYS[3], id, states[id])
    end
  end
  for bucket, digests in pairs(buckets) do
    write('HSET', KEYS[4], bucket, digests)
  end
  write('HSET', KEYS[1], 'items_position', position)
  announce()
  commit()
else
  confirm(KEYS[1])
end
return {'ok', redis.call('HGETALL', KEYS[1])}
