"""A map entry that outlives its block serves hits on what the block holds now."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """The map and the keys on the blocks say the same (the null block is another invariant's)."""
    mapped = {(key, b) for key, blocks in engine.cached for b in blocks if b != NULL}
    carried = {(key, i) for i, b in enumerate(engine.blocks) if i != NULL for key in b.keys}
    for key, block in sorted(mapped - carried):
        yield because(
            f"the map of {engine.name} sends prefix {key[1]!r} of group {key[0]} to {block}",
            f"block {block} carries {list(engine.blocks[block].keys) or None}",
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )
    for key, block in sorted(carried - mapped):
        yield because(
            f"block {block} of {engine.name} carries prefix {key[1]!r} of group {key[0]}",
            "the map does not know it",
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )


INVARIANT = Invariant(
    id="hash_map_is_sound",
    name="a key leads to a block exactly if that block carries the key",
    origin="vllm#49125",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    killed_by="evicted_key_stays",
)
