"""Two groups have different block sizes. At the end of a prompt, vLLM caches the last prefix that
fits the smaller block size in the wider block too (see vllm#49125). No lookup in the group with the
wider blocks can end inside a block, so this cache entry is never hit. It still occupies the hash
map, and the KV events report it to routers as cached."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """The length of every cached prefix is a multiple of the group's block size, or of the hash
    unit if hits may end inside a block."""
    cfg = cluster.engine(engine.name)
    for index, prefix in (key for key, _ in engine.cached):
        size = cfg.hash_unit if cfg.partial_block_hits else cfg.groups[index].block_size
        if (len(prefix) - cfg.hash_lookahead_tokens) % size:
            yield because(
                reason(
                    "is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"
                ),
                reason(
                    "no_hit_ends_there",
                    "a hit in blocks of {size} tokens cannot end there",
                    size=size,
                ),
                engine=engine.name,
                group=index,
                prefix=prefix,
            )


INVARIANT = Invariant(
    id="cached_key_can_be_hit",
    name="a prefix is cached only at a length at which a hit can end",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.BOOKKEEPING,
    check=EachEngine(check),
    needs=(Need.CONTENTS,),
    subjects=(Subject.CACHED_BLOCK, Subject.PREFIXES, Subject.CACHED),
    killed_by="end_of_prompt_cached_in_wider_block",
)
