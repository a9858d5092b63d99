"""The store in memory: the reference that the one in Redis is compared with."""
