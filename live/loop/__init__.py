"""The loop of an engine: the messages of its clients, its steps, and when it waits.

vLLM's own loop runs (`EngineCoreProc.run_busy_loop`), on fake workers without a model. A plan says
which messages come at which moment. The checks in `invariants/loop.py` judge the run.
"""
