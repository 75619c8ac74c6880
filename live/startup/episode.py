"""Carries out a plan: first a start with plenty of memory, which shows the size of a block and the
blocks of a request, and then the start that the plan describes."""

from collections.abc import Sequence

from msgspec.structs import replace

from kvproof.live import blame
from kvproof.live.death import death_of, place
from kvproof.live.endless import watched
from kvproof.live.startup.engine import REFUSALS, StartedEngine
from kvproof.model import interruption
from kvproof.model.facts.startup import Startup
from kvproof.model.plans.startup import StartupPlan

PLENTY_BLOCKS = 200
"""The number of blocks for which the first start has memory, as if all layers were as large as the
largest."""

CONFIG_CHECK = "validate_block_size"
"""The check of the config, which refuses by an assertion too."""


def starts(plan: StartupPlan) -> list[Startup]:
    """The starts of a plan, in order: two, or only the first if its request does not end. Raises
    AdapterDrift."""
    if not plan.layers:
        return []
    count = len(plan.workers())
    largest = max(e.content_bytes * (1 if e.kind == "mamba" else e.block) for e in plan.layers)
    plenty = [PLENTY_BLOCKS * largest * len(plan.layers)] * count
    first = _start(replace(plan, auto=False), None, plenty)
    if first.run is None or not first.run.ended:
        return [first]
    from_ = first.run.held_max + 1 if plan.counted_from == "need" else first.enough_blocks
    blocks = max(from_ + plan.blocks, 1)
    memory = [
        each.block_bytes * (blocks + plan.more * (at == plan.richer % count))
        + min(plan.odd_bytes, each.block_bytes - 1)
        for at, each in enumerate(first.workers)
    ]
    second = _start(plan, blocks, plenty if plan.override else memory)
    second = second._replace(groups=first.groups, in_flight_tokens=first.in_flight_tokens)
    if second.run is not None and not second.run.ended:
        tokens = second.run.tokens
        again = _start(
            replace(plan, auto=False, override=False, max_model_len=tokens), None, plenty
        )
        held = again.run.held_max if again.run else 0
        second = second._replace(lacks=max(held + 1 - second.num_blocks, 0))
    return [first, second]


def _start(plan: StartupPlan, blocks: int | None, memory: Sequence[int]) -> Startup:
    """Start an engine, and run one request on it."""
    start = Startup(plan, blocks)
    try:
        with watched() as call_begins:
            engine = StartedEngine(plan, memory, blocks if plan.override else None)
            start = start._replace(
                num_blocks=engine.config.num_blocks,
                max_model_len=engine.max_model_len,
                known_tokens=engine.executor.known_tokens,
                concurrency=engine.concurrency,
                workers=engine.workers(),
                groups=engine.groups(),
                in_flight_tokens=engine.in_flight_steps() * plan.chunk_tokens,
            )
            return start._replace(run=engine.run(call_begins))
    except Exception as error:
        interruption.check()
        blame.spare(error)
        if isinstance(error, REFUSALS) or place(error).name == CONFIG_CHECK:
            return start._replace(refused=str(error).split(". ")[0])
        return start._replace(died=death_of(error))
