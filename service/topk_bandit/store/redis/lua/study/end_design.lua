#!lua
-- End an attempt at a design, unless it has ended.
-- KEYS[1] meta    written: where the design stands
-- KEYS[2] log     written: DesignChosen, DesignCancelled or DesignFailed
-- KEYS[3] lease   written: it goes
-- ARGV[1] incarnation
-- ARGV[2] attempt
-- ARGV[3] state: ready, cancelled or failed
-- ARGV[4] the event
-- ARGV[5] progress, empty to leave it as it is
-- ARGV[6] DesignFailed, else empty
-- Returns {'ok', meta} or {'no_study'}.

local study = redis.call('HMGET', KEYS[1], 'incarnation', 'attempt', 'state')
if study[1] ~= ARGV[1] then
  return {'no_study'}
end
if study[2] == ARGV[2] and study[3] == 'designing' then
  append(KEYS[1], KEYS[2], now_ms(), ARGV[4])
  write('HSET', KEYS[1], 'state', ARGV[3], 'failure', ARGV[6])
  if ARGV[5] ~= '' then
    write('HSET', KEYS[1], 'progress', ARGV[5])
  end
  write('DEL', KEYS[3])
end
commit()
return confirm(KEYS[1], {'ok', redis.call('HGETALL', KEYS[1])})
