"""The scheduler: carries out recorded choices and sends the step to the worker. Beside the batch,
the worker learns who leaves it, and which blocks to erase.

A choice that the spec forbids raises NotAllowed. The order of requests, the size of chunks below
the limit, and whether to admit a request are policy: a recorded run may choose differently from
`greedy`.

Sources: `Scheduler.schedule`, `Scheduler.finished_req_ids`, `SchedulerOutput.preempted_req_ids` and
`Scheduler._get_new_block_ids_to_zero` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.environment import acceptance
from kvproof.model.errors import NotAllowed
from kvproof.model.events import BLOCKS, Admit, Choice, Compute, FinishLoad, Lists, Release
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.reference.scheduling.admission import admit, finish_load
from kvproof.model.reference.scheduling.computing import compute
from kvproof.model.reference.scheduling.preemption import preempt, release
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import PAUSED, RUNNING, WAITING, Engine, Request, State
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
        places=places(engine),
        zeroed=zeroed(work.cfg, work.engine, work.chose),
    )
    return work.state.with_engine(engine), effects


def keeps_its_place(request: Request) -> bool:
    """Whether the worker keeps the place of a request: it runs, or it is a session that keeps its
    blocks between two parts of its prompt. All others have left, and this is reported to the
    worker (vllm#46974)."""
    session = request.status in (PAUSED, WAITING) and not request.external
    return request.status == RUNNING or (session and bool(request.tables))


def places(engine: Engine) -> tuple[str, ...]:
    """The requests for which the worker keeps a place."""
    return tuple(r.id for r in engine.requests if keeps_its_place(r))


def zeroed(cfg: config.EngineConfig, engine: Engine, chose: Sequence[Choice]) -> tuple[int, ...]:
    """The new blocks that the worker erases before it computes the step. Only an engine with Mamba
    groups needs this (vllm#35219). Blocks that a load fills beside the steps are left out, because
    the two writes would race (vllm#48481)."""
    if all(group.attention for group in cfg.groups):
        return ()
    found: list[int] = []
    for choice in chose:
        if isinstance(choice, Admit | Compute) and choice.taken:
            loaded = _loaded(cfg, engine, choice) if isinstance(choice, Admit) else ()
            for group, blocks in zip(cfg.groups, choice.taken, strict=True):
                found += blocks_to_zero(group, blocks, loaded)
    return tuple(found)


def _loaded(cfg: config.EngineConfig, engine: Engine, choice: Admit) -> Sequence[int]:
    """The blocks up to the end of a load that fills them beside the steps. A group whose own hit is
    shorter loads more than the tokens after the hit."""
    request = engine.find(choice.request)
    if cfg.store or not choice.external or request is None:
        return ()
    end = choice.local_hit + choice.external
    lists: Lists = tuple(
        table[: int(counts.blocks_for_tokens(end, group.block_size))]
        for group, table in zip(cfg.groups, request.tables, strict=False)
    )
    return [block for blocks in lists for block in blocks]


def blocks_to_zero(group: config.Group, blocks: Sequence[int], loaded: Sequence[int]) -> list[int]:
    """The new blocks of an attention group without those that a load fills. A Mamba layer
    overwrites a whole state."""
    return [block for block in blocks if group.attention and block not in loaded]
