"""The start-up of an engine: from the layers and the memory of its workers to a first request.

vLLM's own planning runs (`EngineCore._initialize_kv_caches`), on fake workers that only say which
layers and how much memory they have. The checks in `invariants/startup.py` and
`invariants/layouts.py` judge the result.
"""
