#!lua
-- Have a bandit forget what it learned.
-- KEYS[1] meta   written: the request id, and revision, because no correction of an earlier reward may come after it
-- KEYS[2] log    written: BanditReset
-- ARGV[3] BanditReset
-- ARGV[4] request id
-- Returns {'ok', meta} or {'no_bandit'}.

local current = redis.call('HMGET', KEYS[1], 'incarnation', 'reset_by')
if not current[1] then
  return {'no_bandit'}
end
if current[2] == ARGV[4] then
  return confirm(KEYS[1], {'ok', redis.call('HGETALL', KEYS[1])})
end
append(KEYS[1], KEYS[2], now_ms(), ARGV[3])
write('HSET', KEYS[1], 'reset_by', ARGV[4])
write('HINCRBY', KEYS[1], 'revision', 1)
announce()
commit()
return {'ok', redis.call('HGETALL', KEYS[1])}
