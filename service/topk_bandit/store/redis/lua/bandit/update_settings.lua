#!lua
-- Change a bandit's settings.
-- KEYS[1] meta   written: settings and revision
-- KEYS[2] log    written: SettingsChanged
-- ARGV[3] settings
-- ARGV[4] SettingsChanged
-- ARGV[5] revision that the change was made from
-- ARGV[6] reward wait in ms
-- ARGV[7] default reward, or null
-- ARGV[8] item capacity
-- Returns {'ok', meta}, {'no_bandit'} or {'revision_changed'}.

local current = redis.call('HMGET', KEYS[1], 'settings', 'revision')
if not current[1] then
  return {'no_bandit'}
end
if current[1] == ARGV[3] then
  return {'ok', redis.call('HGETALL', KEYS[1])}
end
if current[2] ~= ARGV[5] then
  return {'revision_changed'}
end
append(KEYS[1], KEYS[2], now_ms(), ARGV[4])
redis.call('HSET', KEYS[1],
  'settings', ARGV[3], 'reward_wait_ms', ARGV[6], 'default_reward', ARGV[7], 'item_capacity', ARGV[8])
redis.call('HINCRBY', KEYS[1], 'revision', 1)
announce()
return {'ok', redis.call('HGETALL', KEYS[1])}
