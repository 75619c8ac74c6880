"""A reset after a change of weights must leave nothing of the old ones (#57727 is about a tier that
was left out). One that drops what it can reach, while requests hold the rest, says that all is new,
and later prompts still hit what is old."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="reset_under_load",
    origin="vllm#57727",
    mistake="a reset is carried out though blocks are in use, and leaves those in the cache",
    replaces=("pool_is_idle", lambda _engine: True),
    breaks=("reset_is_whole",),
    cluster="resetting",
    trace_events=4,
)
