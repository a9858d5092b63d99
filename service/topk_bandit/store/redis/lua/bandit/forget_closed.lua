#!lua
-- Forget recommendations that were closed long ago.
-- KEYS[1..8]   `BanditKeys.of_slates`
-- ARGV[1] how long a closed record is kept, in ms
-- Returns nothing.

if known_bandit() then
  turn(now_ms(), tonumber(ARGV[1]))
  commit()
end
