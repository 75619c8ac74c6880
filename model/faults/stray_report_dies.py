"""What vLLM 0.32.0's scheduler does (#46240, #43226). It takes for granted that it waits for every
report a connector's worker makes: one that comes twice, or for a request that is gone, fails an
assertion and the engine dies."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import FAILED, LOADED, Engine


def asserts_that_it_waits(engine: Engine, name: str) -> Engine:
    """Dead, unless the next step has yet to take over the load that was reported first."""
    request = engine.find(name)
    if request is not None and request.status in (LOADED, FAILED):
        return engine
    return engine._replace(dead=f"nobody waits for a report on {name}")


FAULT = Fault(
    name="stray_report_dies",
    origin="vllm#46240",
    mistake="a report that nobody waits for fails an assertion",
    replaces=("take_repeated_report", asserts_that_it_waits),
    breaks=("engine_survives",),
    cluster="pd-stray",
    trace_events=3,
    dies_in=("_update_from_kv_xfer_finished",),
)
