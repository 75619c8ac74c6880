"""Blocks beyond the tokens a request holds serve nobody, and positions after them are off by as
many (the class of vllm#46892). Proved of the spec for all sizes as a claim of the same name."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A table is no longer than the tokens computed, or brought by a hit and a load, need. With a
    drafter there are also the drafts that were taken back, of each step in flight, what it may
    write ahead, and a state after each draft. Where a store's load may fail, a request may be
    thrown back and keeps the blocks of what it has to compute again, and of steps that were under
    way."""
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
                    f"{request.id} on {engine.name} holds {held} tokens, which need {most} blocks "
                    f"of group {index}",
                    f"its table has {len(table)}",
                    engine=engine.name,
                    request=request.id,
                    group=index,
                )


INVARIANT = Invariant(
    id="table_fits_its_tokens",
    name="a block table has no more entries than the tokens it holds need",
    origin="vllm#46892",
    severity=Severity.LEAK,
    check=EachEngine(check),
    killed_by="placeholders_predicted",
)
