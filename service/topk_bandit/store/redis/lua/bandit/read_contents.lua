#!lua flags=no-writes
-- Read what there is of a bandit beside its log, its items and its slates.
-- KEYS[1] meta      read: all
-- KEYS[2] retired   read: all
-- Returns {'ok', meta, retired} or {'no_bandit'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
return {'ok', redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
