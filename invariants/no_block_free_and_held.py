"""If a block is in the free queue and in a block table, another request can take it while its first
owner still reads it (vllm#33775). The first owner then reads the other request's KV."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """No block of a block table is in the free queue."""
    free = set(engine.free)
    for request in engine.requests:
        for group, table in enumerate(request.tables):
            for block in free.intersection(table):
                yield because(
                    reason(
                        "holds_block", "{request} holds block {block} of {engine} in group {group}"
                    ),
                    reason("is_free", "block {block} is in the free queue"),
                    engine=engine.name,
                    request=request.id,
                    group=group,
                    block=block,
                )


INVARIANT = Invariant(
    id="no_block_free_and_held",
    name="no block is both in the free queue and in a block table",
    origin="vllm#33775",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.BLOCKS,),
    subjects=(Subject.FREE_AND_HELD, Subject.HOLDERS, Subject.IS_FREE),
    killed_by="untouched_hits",
)
