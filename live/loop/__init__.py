"""The loop of an engine: the messages of its clients, its steps, and when it waits.

The loop of vLLM runs as it is (`EngineCoreProc.run_busy_loop`), on workers that compute symbols. A
plan says which messages come at which moment. The checks in `invariants/loop.py` judge what comes
of it.
"""
