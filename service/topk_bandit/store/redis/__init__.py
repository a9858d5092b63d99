"""The store in Redis or Valkey: each write is one Lua script, and the keys of a bandit or study share one slot.

It keeps the promises of `topk_bandit.store.log` on one server, behind Sentinel and in a cluster. Nothing here folds a
log.
"""
