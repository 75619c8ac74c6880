"""vLLM 0.32.0's scheduler (vllm#46240, vllm#43226) assumes that it waits for every report of a
connector's worker. A report that arrives twice, or for a request that is gone, fails an assertion,
and the engine dies."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.transfer_ends import stray_report
from kvproof.model.state import FAILED, LOADED, Death, State


def asserts_that_it_waits(state: State, engine_name: str, name: str) -> State:
    """Stop the engine, except if the next step has not yet processed the first report of this
    load."""
    state = stray_report(state, engine_name, name)
    engine = state.engine(engine_name)
    request = engine.find(name)
    if request is not None and request.status in (LOADED, FAILED):
        return state
    return state.with_engine(
        engine._replace(dead=Death(message=f"no request waits for a report on {name}"))
    )


FAULT = Fault(
    name="stray_report_dies",
    origin="vllm#46240",
    in_vllm="Scheduler._update_from_kv_xfer_finished",
    mistake="a report that no request waits for fails an assertion",
    replaces={"reference.transfers.transfer_ends:stray_report": asserts_that_it_waits},
    breaks=("engine_survives",),
    cluster="pd-stray",
    trace_events=3,
    dies_in=("_update_from_kv_xfer_finished",),
)
