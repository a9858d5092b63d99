#!lua flags=no-writes
-- Read what is known of a study.
-- KEYS[1..6]   `StudyKeys.all`
-- ARGV[..]     which key has it, and what field, of each field
-- Returns {'known', the time, meta, and a list with each field, which is empty where it is not there}, or {'no_study'}.

local meta = redis.call('HGETALL', KEYS[1])
if #meta == 0 then
  return {'no_study'}
end
local fields = {}
for i = 1, #ARGV, 2 do
  fields[#fields + 1] = redis.call('HGET', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) or ''
end
return {'known', text(now_ms()), meta, fields}
