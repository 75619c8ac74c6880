"""The scheduler: carries out recorded choices and sends the step to the worker.

A choice that the spec forbids raises NotAllowed. The order of requests, the size of chunks below
the limit, and whether to admit a request are policy: a recorded run may choose differently from
`greedy`.

Source: `Scheduler.schedule` of vLLM V1.
"""

from kvproof.model import memory
from kvproof.model.environment import acceptance
from kvproof.model.errors import NotAllowed
from kvproof.model.events import BLOCKS, Admit, Choice, Compute, FinishLoad, Release
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.scheduling import reported_to_worker
from kvproof.model.reference.scheduling.admission import admit, finish_load
from kvproof.model.reference.scheduling.computing import compute
from kvproof.model.reference.scheduling.preemption import preempt, release
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import State
from kvproof.model.step import Effects


def take_choice(work: SchedulerStep, choice: Choice) -> None:
    """Carry out one recorded choice, with its recorded blocks."""
    group_counts = {len(getattr(choice, name, ())) for name in BLOCKS} - {0}
    if group_counts - {len(work.cfg.groups)}:
        raise NotAllowed(
            f"{choice.request} has blocks in {max(group_counts)} groups, but engine "
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
    """Send the step to the worker, which executes it. Loads from a store are done before."""
    if work.pending is not None:
        raise NotAllowed(f"{work.pending[0]} is admitted but not scheduled")
    engine = work.engine
    batch = [
        (engine.request(r), tokens)
        for r, tokens in work.scheduled
        if not acceptance.awaits(work.cfg, engine, r)
    ]
    for name in work.brought:
        engine = memory.load(work.cfg, engine, engine.request(name))
    copies = partial_block_hits.handed_out(engine)
    engine, reads = partial_block_hits.run_step(work.cfg, engine, batch)
    if work.cfg.overlaps:
        engine = in_flight.dispatched(work.cfg, engine, work.scheduled)
    else:
        engine = engine._replace(step=tuple(work.scheduled) or None)
    admissions, allocations = tuple(work.admissions), tuple(work.allocations)
    effects = Effects(
        reads,
        admissions,
        allocations,
        copies=copies,
        places=reported_to_worker.places(engine),
        zeroed=reported_to_worker.zeroed(work.cfg, work.engine, work.chose),
    )
    return work.state.with_engine(engine), effects
