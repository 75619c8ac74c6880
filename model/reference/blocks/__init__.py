"""The KV-cache manager: block pool, cache groups, prefix hits in all groups, and growth of block
tables."""
