"""The store in Redis or Valkey: one Lua script for each write, one hash tag for each bandit and study."""
