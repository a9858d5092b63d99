#!lua
-- Take in answers, each on its own.
-- KEYS[1] meta      read: asked; written: answered
-- KEYS[2] log       written: Answered for each that is accepted
-- KEYS[3] answers   written: each that is accepted, by question
-- ARGV[1] incarnation
-- ARGV[2..] for each its question, the answer and Answered
-- Returns {'ok', then for each accepted, duplicate, conflict or unknown} or {'no_study'}.

local study = redis.call('HMGET', KEYS[1], 'incarnation', 'asked')
if study[1] ~= ARGV[1] then
  return {'no_study'}
end
local at_ms = now_ms()
local outcomes, given = {'ok'}, {}
for i = 2, #ARGV, 3 do
  local question, answer = ARGV[i], ARGV[i + 1]
  local known = given[question] or redis.call('HGET', KEYS[3], question)
  if known then
    outcomes[#outcomes + 1] = known == answer and 'duplicate' or 'conflict'
  elseif tonumber(question) < 1 or tonumber(question) > tonumber(study[2]) then
    outcomes[#outcomes + 1] = 'unknown'
  else
    append(KEYS[1], KEYS[2], at_ms, ARGV[i + 2])
    given[question] = answer
    write('HSET', KEYS[3], question, answer)
    write('HINCRBY', KEYS[1], 'answered', 1)
    outcomes[#outcomes + 1] = 'accepted'
  end
end
return confirm(KEYS[1], outcomes)
