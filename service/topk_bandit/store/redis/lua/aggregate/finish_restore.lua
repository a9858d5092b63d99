#!lua
-- Make what is restored a bandit or a study, under a reservation that has not lapsed.
-- KEYS[1] meta         written: the record
-- KEYS[2] arriving     read: how far the import is; removed
-- KEYS[3..] others     each key that is made, and the key that becomes it
-- ARGV[3] how far the import has to be
-- ARGV[4] import id
-- ARGV[5] when the index entry was reserved, in ms
-- ARGV[6] how long a reservation holds, in ms
-- ARGV[7..] the fields of meta, each its name and its value
-- Returns {'created', meta}, {'exists', meta} of what came of this import, {'arrived'}, {'arrival_replaced'},
-- {'left'} or {'lapsed'}.

if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HGET', KEYS[1], 'arrived') ~= ARGV[4] then
    return {'arrived'}
  end
  return confirm(KEYS[1], {'exists', redis.call('HGETALL', KEYS[1])})
end
for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    return {'left'}
  end
end
if redis.call('GET', KEYS[2]) ~= ARGV[3] then
  return {'arrival_replaced'}
end
if now_ms() >= ARGV[5] + ARGV[6] then
  return {'lapsed'}
end
write('HSET', KEYS[1], 'arrived', ARGV[4], unpack(ARGV, 7))
for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    write('RENAME', KEYS[i + 1], KEYS[i])
    write('PERSIST', KEYS[i])
  end
end
write('UNLINK', KEYS[2])
announce()
commit()
return {'created', redis.call('HGETALL', KEYS[1])}
