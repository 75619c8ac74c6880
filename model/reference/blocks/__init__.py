"""The KV-cache manager: block pool, cache groups, hits over all groups, and growth."""
