#!lua
-- Change a bandit's settings.
-- KEYS[1] meta   written: settings and revision
-- KEYS[2] log    written: SettingsChanged
-- ARGV[3] settings
-- ARGV[4] SettingsChanged
-- ARGV[5] revision that the change was made from
-- ARGV[6..] the settings that scripts need, each its name and its value
-- Returns {'ok', meta}, {'no_bandit'} or {'revision_changed'}.

local current = redis.call('HMGET', KEYS[1], 'settings', 'revision')
if not current[1] then
  return {'no_bandit'}
end
if unstamped(current[1]) == unstamped(ARGV[3]) then
  return confirm(KEYS[1], {'ok', redis.call('HGETALL', KEYS[1])})
end
if current[2] ~= ARGV[5] then
  return {'revision_changed'}
end
append(KEYS[1], KEYS[2], now_ms(), ARGV[4])
write('HSET', KEYS[1], 'settings', ARGV[3], unpack(ARGV, 6))
write('HINCRBY', KEYS[1], 'revision', 1)
announce()
commit()
return {'ok', redis.call('HGETALL', KEYS[1])}
