"""vllm#42554: a request that loads schedules no tokens. The align split of 0 tokens is 0, and vLLM
reads 0 as "not in this step", so the request is never admitted."""

from kvproof.model.errors import NotAllowed
from kvproof.model.events import Lists
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.growth import Grown
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling.admission import begin_load
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Request


def put_off(work: SchedulerStep, request: Request, hit: Hit, recorded: Lists) -> Grown | None:
    """Refuse to begin a load on an engine with a Mamba group in align mode."""
    if work.cfg.aligned_group:
        raise NotAllowed("the align split leaves 0 tokens of a load")
    return begin_load(work, request, hit, recorded)


FAULT = Fault(
    name="align_split_during_load",
    origin="vllm#42554",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="the align split is applied to a load of 0 new tokens and defers it for ever",
    replaces={"reference.scheduling.admission:begin_load": put_off},
    breaks=("every_request_can_finish",),
    cluster="pd",
    trace_events=7,
)
