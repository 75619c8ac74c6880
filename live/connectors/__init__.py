"""The connector kit: any KV connector of vLLM, judged by what it does to the KV cache.

The engine core is real, the connector is real on both sides, and so is the code of vLLM's worker
that calls it (`ActiveKVConnector`) and that lays out the KV caches (`allocate_kv_cache`). The model
is not: in place of KV, each slot of each layer holds a number that stands for the prefix which it
belongs to. So "wrong tokens" is an inequality of numbers in memory, after any load, save, abort or
preemption, and no message of the connector is interpreted.
"""
