#!lua flags=no-writes
-- Tell what there is of a bandit, without reading what is large.
-- KEYS[1] meta         read: all
-- KEYS[2..] others     read: of what kind each is
-- Returns {the kind of each key, 'none' for one that is missing; meta, {} unless it is a hash}.

local kinds = {}
for i, key in ipairs(KEYS) do
  kinds[i] = redis.call('TYPE', key).ok
end
return {kinds, kinds[1] == 'hash' and redis.call('HGETALL', KEYS[1]) or {}}
