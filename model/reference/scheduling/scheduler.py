"""The scheduler: carries out recorded choices, and hands the step to the worker.

A choice that the reference would not make raises NotAllowed. The order of requests, the size of
chunks below the limit and the refusal to admit are policy: a recorded run may choose otherwise than
`greedy` does.

Source: `Scheduler.schedule` of vLLM V1.
"""

from kvproof.model import memory
from kvproof.model.errors import NotAllowed
from kvproof.model.events import BLOCKS, Admit, Choice, Compute, FinishLoad, Release
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.scheduling.admission import admit, finish_load
from kvproof.model.reference.scheduling.computing import compute
from kvproof.model.reference.scheduling.preemption import preempt, release
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import State
from kvproof.model.step import Effects


def take_choice(work: SchedulerStep, choice: Choice) -> None:
    """Carry out one recorded choice, with the blocks that it says it took."""
    groups_said = {len(getattr(choice, name, ())) for name in BLOCKS} - {0}
    if groups_said - {len(work.cfg.groups)}:
        raise NotAllowed(
            f"{choice.request} has blocks in {max(groups_said)} groups, and engine "
            f"{work.cfg.name} has {len(work.cfg.groups)}"
        )
    if isinstance(choice, Admit):
        admit(work, choice)
    elif isinstance(choice, FinishLoad):
        finish_load(work, choice)
    elif isinstance(choice, Compute):
        compute(work, choice)
    elif isinstance(choice, Release):
        release(work, choice)
    else:
        preempt(work, choice)


def dispatch(work: SchedulerStep) -> tuple[State, Effects]:
    """Hand the step to the worker, which runs it; what a store brings is there before."""
    if work.pending is not None:
        raise NotAllowed(f"{work.pending[0]} is admitted and not scheduled")
    engine = work.engine
    batch = [
        (engine.request(r), tokens)
        for r, tokens in work.scheduled
        if not in_flight.awaits(work.cfg, engine, r)
    ]
    for name in work.brought:
        engine = memory.load(work.cfg, engine, engine.request(name))
    copies = partial_block_hits.handed_out(engine)
    engine, reads = work.rules.run_step(work.cfg, engine, batch, work.rules)
    if work.cfg.overlaps:
        engine = in_flight.dispatched(work.cfg, engine, work.scheduled)
    else:
        engine = engine._replace(step=tuple(work.scheduled) or None)
    admissions, allocations = tuple(work.admissions), tuple(work.allocations)
    effects = Effects(reads, admissions, allocations, copies=copies)
    return work.state.with_engine(engine), effects
