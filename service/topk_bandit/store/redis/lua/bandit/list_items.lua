#!lua flags=no-writes
-- Read all items.
-- KEYS[1] meta    read: is there such a bandit
-- KEYS[2] items   read: all
-- Returns {'ok', items} or {'no_bandit'}.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no_bandit'}
end
return {'ok', redis.call('HGETALL', KEYS[2])}
