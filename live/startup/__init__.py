"""The start-up of an engine: from the layers and the memory of its workers to a first request.

The planning of vLLM runs as it is (`EngineCore._initialize_kv_caches`), on workers that only say
which layers they have and how much memory. The checks in `invariants/startup.py` and
`invariants/layouts.py` judge what comes of it.
"""
