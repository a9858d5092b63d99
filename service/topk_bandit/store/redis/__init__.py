"""The store in Redis or Valkey: each write is one Lua script, and the keys of a bandit or study share one slot."""
