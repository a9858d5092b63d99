#!lua
-- Add items, change their availability, retire them.
-- KEYS[1] meta    read: item capacity; written: items_position
-- KEYS[2] log     written: ItemsChanged
-- KEYS[3] items   written: "index state" for each item that differs
-- ARGV[3] how many items are upserted
-- ARGV[4..] for each its id and state (available, unavailable); then the ids to retire
-- Returns {'ok', meta}, {'no_bandit'}, {'item_capacity', capacity}, {'item_retired', id} or {'no_item', id}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
local capacity = redis.call('HGET', KEYS[1], 'item_capacity')
local count = redis.call('HLEN', KEYS[3])
local items = {}      -- id -> {index, state} as it will be, for the ids looked at
local differing = {}  -- ids in items whose state differs from what is stored, or did on the way
local upserted, retired = {}, {}

local function look(id)
  if not items[id] then
    local index, state = string.match(redis.call('HGET', KEYS[3], id) or '', '^(%d+) (%l+)$')
    items[id] = {index = index, state = state}
  end
  return items[id]
end

local function change(id, item, state)
  item.state = state
  differing[id] = true
end

local first_retired = 4 + 2 * ARGV[3]
for i = 4, first_retired - 1, 2 do
  local id, state = ARGV[i], ARGV[i + 1]
  local item = look(id)
  if item.state == 'retired' then
    return {'item_retired', id}
  end
  if not item.state then
    if count >= tonumber(capacity) then
      return {'item_capacity', capacity}
    end
    item.index = text(count)
    count = count + 1
  end
  if item.state ~= state then
    change(id, item, state)
    local available = state == 'available' and 'true' or 'false'
    upserted[#upserted + 1] = '[' .. cjson.encode(id) .. ',' .. available .. ']'
  end
end
for i = first_retired, #ARGV do
  local id = ARGV[i]
  local item = look(id)
  if not item.state then
    return {'no_item', id}
  end
  if item.state ~= 'retired' then
    change(id, item, 'retired')
    retired[#retired + 1] = cjson.encode(id)
  end
end

if next(differing) then
  local event = '{"v":1,"type":"items_changed","upserted":[' .. table.concat(upserted, ',')
    .. '],"retired":[' .. table.concat(retired, ',') .. ']}'
  local position = append(KEYS[1], KEYS[2], now_ms(), event)
  for id in pairs(differing) do
    redis.call('HSET', KEYS[3], id, items[id].index .. ' ' .. items[id].state)
  end
  redis.call('HSET', KEYS[1], 'items_position', position)
  announce()
end
return {'ok', redis.call('HGETALL', KEYS[1])}
