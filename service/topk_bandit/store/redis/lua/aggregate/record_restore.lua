#!lua
-- Keep a part of a bandit or a study that is being restored. Only finish_restore looks there besides.
-- KEYS[1] arriving   read and written: how far the import is
-- KEYS[2..] others   written: all that is restored
-- ARGV[1] how far the import has to be, or empty for one that begins and takes the place of what is there
-- ARGV[2] how far it is then
-- ARGV[3] for how long an import is kept that nobody goes on with, in ms
-- ARGV[4..] what is written: command, number of the key, how many operands, these; and so on
-- Returns 1, also when it is sent again; or 0 if the import is elsewhere.

local reached = redis.call('GET', KEYS[1])
local i = 4
if reached == ARGV[2] then
  i = #ARGV + 1 -- it was carried out, and nobody heard of it
elseif ARGV[1] == '' then
  redis.call('UNLINK', unpack(KEYS))
elseif reached ~= ARGV[1] then
  return 0
end
while i <= #ARGV do
  local one, count = {ARGV[i], KEYS[tonumber(ARGV[i + 1])]}, tonumber(ARGV[i + 2])
  for j = 1, count do
    one[#one + 1] = ARGV[i + 2 + j]
  end
  writes[#writes + 1] = one
  i = i + 3 + count
end
write('SET', KEYS[1], ARGV[2])
for _, key in ipairs(KEYS) do
  write('PEXPIREAT', key, text(now_ms() + ARGV[3]))
end
return commit(1)
