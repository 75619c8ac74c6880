"""Before vllm#42554, `_mamba_block_aligned_split` asserted `num_external_computed_tokens == 0`. The
first load of a hybrid model stopped D's engine."""

from kvproof.model.events import Lists
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.growth import Grown
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling.admission import begin_load
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Death, Request


def refused(work: SchedulerStep, request: Request, hit: Hit, recorded: Lists) -> Grown | None:
    """Stop an engine with a Mamba group in align mode at its first load."""
    if work.cfg.aligned_group:
        work.die(Death(message="the align split refuses external tokens"))
        return None
    return begin_load(work, request, hit, recorded)


FAULT = Fault(
    name="align_split_refuses_external",
    origin="vllm#42554",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="the align split asserts that a request has no external tokens",
    replaces={"reference.scheduling.admission:begin_load": refused},
    breaks=("engine_survives",),
    cluster="pd",
    trace_events=7,
    dies_in=("_mamba_block_aligned_split",),
)
