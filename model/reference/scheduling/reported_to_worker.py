"""What a step reports to the worker beside the batch: who leaves it, and which blocks to erase.

Sources: `Scheduler.finished_req_ids`, `SchedulerOutput.preempted_req_ids`, and
`Scheduler._get_new_block_ids_to_zero` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.events import Admit, Choice, Compute, Lists
from kvproof.model.state import PAUSED, RUNNING, WAITING, Engine, Request


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
