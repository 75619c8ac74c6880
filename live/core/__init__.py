"""The engine core of vLLM (`EngineCoreProc`) on fake workers without a model. The connector kit
lets it take its steps. Here its own start-up plans its KV caches; then one request runs alone, or
its own loop runs with messages of clients, or both. The checks in `invariants/startup.py`,
`layouts.py` and `loop.py` judge what comes of it.
"""
