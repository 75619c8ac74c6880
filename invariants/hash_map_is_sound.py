"""The hash map leads from a key to the blocks that hold its prefix. If a block is evicted and
reused while its entry stays in the map (vllm#49125), a lookup of the old key returns the new
content of the block."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.numbered import numbered
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """The hash map and the keys of the blocks agree. The null block has its own invariant."""
    mapped = {(key, b) for key, blocks in engine.cached for b in blocks if b != NULL}
    carried = {(key, i) for i, b in numbered(engine.blocks) if i != NULL for key in b.keys}
    for key, block in sorted(mapped - carried):
        yield because(
            reason(
                "is_mapped",
                "the hash map of {engine} maps prefix {prefix:quoted} of group "
                "{group} to block {block}",
            ),
            reason(
                "has_keys",
                "block {block} has the keys {keys:or none}",
                keys=engine.blocks[block].keys,
            ),
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )
    for key, block in sorted(carried - mapped):
        yield because(
            reason(
                "has_key",
                "block {block} of {engine} has the key of prefix {prefix:quoted} of group {group}",
            ),
            reason("is_not_mapped", "the hash map has no such entry"),
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )


INVARIANT = Invariant(
    id="hash_map_is_sound",
    name="the hash map maps a key to a block exactly if the block has this key",
    origin="vllm#49125",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.BLOCKS,),
    subjects=(Subject.CACHED_BLOCK, Subject.PREFIXES, Subject.CACHED),
    killed_by="evicted_key_stays",
)
