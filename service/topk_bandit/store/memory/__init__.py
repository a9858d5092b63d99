"""The store in memory: the reference that the store in Redis is compared with."""
