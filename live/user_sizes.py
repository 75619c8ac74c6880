"""The engines of a cluster in the sizes that users have.

kvproof drives blocks of a few tokens, pools of a few blocks, and a model with heads of four values.
A vLLM that fails while it makes such an engine may fail because of these sizes, or because of
something that kvproof leaves out of a config (the tensors of the pool). Whether it does is tried:
an engine with the same groups, options and connector is made in the sizes that users have.
"""

from typing import Any

from msgspec.structs import replace

from kvproof.live import blame, build
from kvproof.model.config import Cluster, EngineConfig, Group

TIMES = 16
"""How many tokens stand for one. Each block then has a multiple of 16 tokens."""

CHUNK_TOKENS, REQUESTS, BLOCKS = 8192, 256, 4096
"""The tokens and the requests of a step, at least; and the blocks of the pool, with which a request
of the largest length fits."""

SHAPE = build.Shape(2, served=build.LARGE_MODEL, of_rank=build.OfRank(heads=8, states=128))
"""What `build.scheduler` is given so that the model has the sizes of one that users have, with the
tensors of its pool."""


def made(cluster: Cluster) -> list[Any]:
    """The schedulers of the engines of a cluster in the sizes that users have. Raises NotValid
    where some size is then too large for an engine, and AdapterDrift where they cannot be made."""
    options = cluster.load_failure, cluster.follow_up_turns, cluster.pushes
    engines = [engine(each) for each in cluster.engines]
    with blame.reading():
        return [build.scheduler(each, *options, shape=SHAPE) for each in engines]


def engine(engine: EngineConfig) -> EngineConfig:
    """An engine with the pool, the blocks and the steps that users have. Raises NotValid."""
    return replace(
        engine,
        groups=tuple(map(_group, engine.groups)),
        num_blocks=BLOCKS,
        chunk_tokens=max(TIMES * engine.chunk_tokens, CHUNK_TOKENS),
        max_requests=max(engine.max_requests, REQUESTS),
        retention=engine.retention and TIMES * engine.retention,
        match_unit=TIMES * engine.match_unit,
        long_prefill_tokens=TIMES * engine.long_prefill_tokens,
    )


def _group(group: Group) -> Group:
    if group.kind == "mamba" and not group.aligned:
        return group  # one state for each request: its block is as long as the longest of them
    return replace(group, block_size=TIMES * group.block_size, window=TIMES * group.window)
