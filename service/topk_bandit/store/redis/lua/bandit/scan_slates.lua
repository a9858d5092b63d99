#!lua flags=no-writes
-- Read some of the recommendations that are open.
-- KEYS[1] meta              read: is there such a bandit
-- KEYS[2] recommendations   read: their records
-- KEYS[3] deadlines         read: which are open
-- ARGV[1] cursor, 0 at first
-- Returns {'ok', next cursor, id, record, id, record, ...} or {'no_bandit'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
local found = redis.call('ZSCAN', KEYS[3], ARGV[1], 'COUNT', 200)
local answer = {'ok', found[1]}
for i = 1, #found[2], 2 do
  local packed = redis.call('HGET', KEYS[2], found[2][i])
  if packed then
    answer[#answer + 1] = found[2][i]
    answer[#answer + 1] = packed
  end
end
return answer
