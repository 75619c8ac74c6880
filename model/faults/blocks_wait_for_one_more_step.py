"""The blocks of an ended request wait for the steps in flight (vllm#45357). If they wait for one
step more than there is, an engine without further requests never frees them."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import NULL, Engine, Request


def behind_the_next(engine: Engine, request: Request) -> Engine:
    """Free all blocks of a request when a step after the steps in flight has ended."""
    blocks = tuple(b for table in request.tables for b in table if b != NULL)
    if not blocks:
        return engine
    return engine._replace(deferred=(*engine.deferred, (len(engine.steps) + 1, blocks)))


FAULT = Fault(
    name="blocks_wait_for_one_more_step",
    origin="vllm#45357",
    in_vllm="Scheduler._free_request_blocks",
    mistake="the blocks of an ended request wait for one more step than is in flight",
    replaces={"reference.features.in_flight:free_behind_steps": behind_the_next},
    breaks=("idle_engine_keeps_nothing",),
    cluster="pd-async",
    trace_events=4,
)
