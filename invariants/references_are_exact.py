"""Blocks of one group were taken before the hits of another were referenced, and the hits were
given away: two requests then held the same block, and the count knew of one."""

from collections import Counter
from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """The count of a block is the number of entries that name it: of block tables, and of lists of
    blocks that wait for a step to end."""
    entries = Counter(b for r in engine.requests for t in r.tables for b in t)
    entries.update(b for _, blocks in engine.deferred for b in blocks)
    for index, block in enumerate(engine.blocks):
        if index != NULL and block.refs != entries[index]:
            yield because(
                f"{entries[index]} table entries on {engine.name} name block {index}",
                f"its count is {block.refs}",
                engine=engine.name,
                block=index,
            )


INVARIANT = Invariant(
    id="references_are_exact",
    name="the reference count of a block is the number of table entries that name it",
    origin="vllm#44409",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    killed_by="untouched_hits",
)
