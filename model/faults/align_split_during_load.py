"""The other half of #42554: a request that is to load schedules no tokens, and 0 tokens after the
align split means 'not in this step'. It is never admitted."""

from kvproof.model.errors import NotAllowed
from kvproof.model.events import Lists
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.growth import Grown
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling.admission import begin_load
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Request


def put_off(work: SchedulerStep, request: Request, hit: Hit, recorded: Lists) -> Grown | None:
    """A load is not begun, where states are kept in align mode."""
    if work.cfg.aligned_group:
        raise NotAllowed("the align split leaves 0 tokens of a load")
    return begin_load(work, request, hit, recorded)


FAULT = Fault(
    name="align_split_during_load",
    origin="vllm#42554",
    mistake="the align split is applied to a load, finds 0 tokens and puts it off for ever",
    replaces=("begin_load", put_off),
    breaks=("every_request_can_finish",),
    cluster="pd",
    trace_events=6,
)
