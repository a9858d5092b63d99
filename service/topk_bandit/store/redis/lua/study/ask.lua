#!lua
-- Give out questions to one request.
-- KEYS[1] meta       read: design, budget; written: asked
-- KEYS[2] log        written: QuestionsAsked
-- KEYS[3] requests   written: "wanted first count", what the request wanted and got
-- ARGV[1] incarnation
-- ARGV[2] request id
-- ARGV[3] how many questions it wants
-- ARGV[4] how many questions it is to get
-- ARGV[5] how many were asked when the caller drew them
-- ARGV[6] QuestionsAsked
-- Returns {'asked', first, count}, {'repeated', first, count}, {'stale'}, {'no_study'}, {'request_id_reused'},
-- {'design_designing'}, {'design_cancelled'}, {'design_failed'} or {'study_budget', budget}.

local study = redis.call('HMGET', KEYS[1], 'incarnation', 'state', 'asked', 'budget')
if not study[1] then
  return {'no_study'}
end
if study[1] ~= ARGV[1] then
  return {'stale'}
end
local known = redis.call('HGET', KEYS[3], ARGV[2])
if known then
  local wanted, first, count = string.match(known, '^(%d+) (%d+) (%d+)$')
  if wanted ~= ARGV[3] then
    return {'request_id_reused'}
  end
  return confirm(KEYS[1], {'repeated', first, count})
end
if study[2] ~= 'ready' then
  return {'design_' .. study[2]}
end
if study[3] ~= ARGV[5] then
  return {'stale'}
end
if tonumber(ARGV[4]) == 0 or study[3] + ARGV[4] > tonumber(study[4]) then
  return {'study_budget', study[4]}
end
local first = text(study[3] + 1)
append(KEYS[1], KEYS[2], now_ms(), ARGV[6])
write('HINCRBY', KEYS[1], 'asked', ARGV[4])
write('HSET', KEYS[3], ARGV[2], ARGV[3] .. ' ' .. first .. ' ' .. ARGV[4])
return commit({'asked', first, ARGV[4]})
