#!lua flags=no-writes
-- Look up what a request was answered with.
-- KEYS[1] meta              read: is there such a bandit, closed
-- KEYS[2] log               read: Recommended of one that is closed
-- KEYS[3] recommendations   read: the record
-- KEYS[4] deadlines
-- KEYS[5..8] closed         read: what is kept of one that is closed
-- ARGV[1] recommendation id
-- ARGV[2] fingerprint of the request
-- Returns {'repeated', deadline_ms, recommendation}, {'logged', Recommended}, {'slate_gone', id}, {'none'}, {'no_bandit'} or
-- {'request_id_reused'}.

local bandit = redis.call('HMGET', KEYS[1], 'incarnation', 'closed')
if not bandit[1] then
  return {'no_bandit'}
end
read_slices(bandit[2])
local known = find_record(ARGV[1])
if not known then
  return {'none'}
end
return recall(ARGV[1], known, ARGV[2])
