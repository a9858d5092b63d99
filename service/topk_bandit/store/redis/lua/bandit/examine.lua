#!lua flags=no-writes
-- Return what there is of a bandit, without reading what is large.
-- KEYS[1] meta         read: all
-- KEYS[2] log          read: its newest entry
-- KEYS[3..] others     read: of what kind each is
-- Returns {the kind of each key, 'none' for one that is missing; meta, {} unless it is a hash; 1 if the log ends where meta
-- says, else 0}.

local kinds = {}
for i, key in ipairs(KEYS) do
  kinds[i] = redis.call('TYPE', key).ok
end
local ends = kinds[1] == 'hash' and kinds[2] == 'stream' and pcall(end_of, KEYS[1], KEYS[2])
return {kinds, kinds[1] == 'hash' and redis.call('HGETALL', KEYS[1]) or {}, ends and 1 or 0}
