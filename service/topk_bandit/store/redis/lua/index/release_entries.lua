#!lua flags=allow-oom
-- Take entries out of a tenant's index that nobody reserved anew meanwhile.
-- KEYS[1] index          written: the entries go
-- KEYS[2] reservations   read: who reserved them last; written: they go
-- ARGV[1..] for each entry its id, and what its reservation must begin with

for i = 1, #ARGV, 2 do
  local reservation = redis.call('HGET', KEYS[2], ARGV[i])
  if reservation and string.sub(reservation, 1, #ARGV[i + 1]) == ARGV[i + 1] then
    write('ZREM', KEYS[1], ARGV[i])
    write('HDEL', KEYS[2], ARGV[i])
  end
end
commit()
