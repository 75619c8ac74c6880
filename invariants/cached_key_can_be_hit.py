"""What is cached and cannot be hit takes a place in the map, and is told to routers as if it could.
Of groups with unequal block sizes, vLLM caches the last prefix of a prompt that fits the finer size
in the wider block too, though no lookup there ends inside a block (see vllm#49125)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Every cached prefix is a whole number of its group's blocks, or of the units at which hits
    inside a block may end."""
    cfg = cluster.engine(engine.name)
    for index, prefix in (key for key, _ in engine.cached):
        size = cfg.hash_unit if cfg.partial_block_hits else cfg.groups[index].block_size
        if (len(prefix) - cfg.hash_lookahead_tokens) % size:
            yield because(
                f"prefix {prefix!r} of group {index} is cached on {engine.name}",
                f"a hit in blocks of {size} tokens never ends there",
                engine=engine.name,
                group=index,
                prefix=prefix,
            )


INVARIANT = Invariant(
    id="cached_key_can_be_hit",
    name="what is cached is where a hit can end",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LOST_PERFORMANCE,
    check=EachEngine(check),
    killed_by="end_of_prompt_cached_in_wider_block",
)
