"""vLLM allocated blocks for one group before it added references to the cached blocks of another
group. The allocation took some of these cached blocks (vllm#44409). Two requests then held the same
block with a reference count of one."""

from collections import Counter
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
    """The reference count of a block is the number of entries that name it, in block tables and in
    lists of blocks that are freed when a step ends."""
    entries = Counter(b for r in engine.requests for t in r.tables for b in t)
    entries.update(b for _, blocks in engine.deferred for b in blocks)
    for index, block in numbered(engine.blocks):
        if index != NULL and block.refs != entries[index]:
            yield because(
                reason(
                    "entries_name_it",
                    "block {block} of {engine} stands in {entries} table entries",
                    entries=entries[index],
                ),
                reason(
                    "reference_count", "its reference count is {references}", references=block.refs
                ),
                engine=engine.name,
                block=index,
            )


INVARIANT = Invariant(
    id="references_are_exact",
    name="the reference count of a block equals the number of table entries that name it",
    origin="vllm#44409",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.BLOCKS, Need.REFERENCES),
    subjects=(Subject.MISCOUNTED, Subject.REFERENCES),
    killed_by="untouched_hits",
)
