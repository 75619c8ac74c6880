"""A block is freed twice, and the free queue has it twice or its reference count is negative
(vllm#42571). The pool then allocates one block to two requests. The engine fails much later, in
`get_new_blocks`, far from the code with the mistake."""

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
    """Free, referenced and null blocks are all blocks, and the free queue agrees with the reference
    counts."""
    unreferenced = {i for i, b in numbered(engine.blocks) if b.refs == 0 and i != NULL}
    negative = [i for i, b in numbered(engine.blocks) if b.refs < 0 and i != NULL]
    if negative:
        yield because(
            reason(
                "count_is_not_negative",
                "the reference count of block {block} of {engine} is at least 0",
            ),
            reason(
                "has_count",
                "it is {references}: the block was freed more often than taken",
                references=engine.blocks[negative[0]].refs,
            ),
            engine=engine.name,
            block=negative[0],
        )
    elif len(engine.free) != len(unreferenced) or set(engine.free) != unreferenced:
        yield because(
            reason("free_queue", "the free queue of {engine} is {free}", free=engine.free),
            reason(
                "unreferenced",
                "the blocks without references are {unreferenced}",
                unreferenced=sorted(unreferenced),
            ),
            engine=engine.name,
        )


def margin(_cluster: Cluster, engine: Engine) -> int:
    """Number of free blocks."""
    return len(engine.free)


INVARIANT = Invariant(
    id="pool_adds_up",
    name=(
        "free, referenced and null blocks are all blocks, and the free queue has each free block "
        "once"
    ),
    origin="vllm#42571",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.BLOCKS,),
    subjects=(Subject.LOST, Subject.FREE),
    margin=margin,
    killed_by="double_free",
)
