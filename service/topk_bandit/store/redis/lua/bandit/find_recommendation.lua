#!lua flags=no-writes
-- Look up what a request was answered with.
-- KEYS[1] meta              read: is there such a bandit
-- KEYS[2] recommendations   read: the record
-- ARGV[1] recommendation id
-- ARGV[2] fingerprint of the request
-- Returns {'repeated', deadline_ms, recommendation}, {'none'}, {'no_bandit'} or {'request_id_reused'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
local known = redis.call('HGET', KEYS[2], ARGV[1])
if not known then
  return {'none'}
end
return recall(known, ARGV[2])
