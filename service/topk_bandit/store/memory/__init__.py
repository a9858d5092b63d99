"""The stores in memory: the reference that the stores in Redis are compared with.

They keep every promise as long as the process lives. Serving never uses them.
"""
