"""A block table has more blocks than its tokens need. These blocks serve no token, and every later
position in the table is off by the same number (compare vllm#46892). A claim of the same name is
proved of the spec for all sizes."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A block table is no longer than its tokens need: the computed tokens, or the tokens of a hit
    and a load.

    With a drafter, the table also holds the rejected drafts of each step in flight, the lookahead
    slots, and a state after each draft. If the load of a store may fail, a request may have to
    recompute tokens, and keeps the blocks of these tokens and of the steps in flight.
    """
    cfg = cluster.engine(engine.name)
    for request in engine.requests:
        held = max(request.computed, request.hit + request.external)
        if cfg.store and cluster.failures:
            held = max(held, len(request.tokens) + cfg.steps_in_flight - 1)
        held += cfg.drafts * cfg.steps_in_flight
        for index, table in enumerate(request.tables):
            group = cfg.groups[index]
            ahead, scratch = (cfg.lookahead, 0) if group.attention else (0, cfg.drafts)
            most = blocks_begun(held + ahead, group.block_size) + scratch
            if len(table) > most:
                yield because(
                    reason(
                        "needs_blocks",
                        "{request} on {engine} holds {held} tokens, which need "
                        "{most} blocks of group {group}",
                        held=held,
                        most=most,
                    ),
                    reason(
                        "table_has", "its block table has {entries} entries", entries=len(table)
                    ),
                    engine=engine.name,
                    request=request.id,
                    group=index,
                )


INVARIANT = Invariant(
    id="table_fits_its_tokens",
    name="a block table has no more entries than its tokens need",
    origin="vllm#46892",
    severity=Severity.LEAK,
    check=EachEngine(check),
    needs=(Need.TABLES, Need.STATES_KEPT),
    subjects=(Subject.BLOCKS, Subject.REAL_BLOCKS),
    killed_by="placeholders_predicted",
)
