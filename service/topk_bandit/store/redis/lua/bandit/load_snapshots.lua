#!lua flags=no-writes
-- Read the kept snapshots.
-- KEYS[1] meta         read: position of the newest snapshot
-- KEYS[2] snapshot 0   read
-- KEYS[3] snapshot 1   read
-- Returns {position of the newest, snapshot 0, snapshot 1}, or {} when there is no such bandit.

local newest = redis.call('HGET', KEYS[1], 'snapshot_position')
if not newest then
  return {}
end
return {newest, redis.call('GET', KEYS[2]) or '', redis.call('GET', KEYS[3]) or ''}
