"""Blocks of an aborted load were never given back when the completion came late (#32255, review;
and #46283): the pool shrinks until nobody is admitted."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """An engine that holds no request, and has no step in flight, has every block free but the null
    block."""
    if not engine.requests and not engine.steps and len(engine.free) != len(engine.blocks) - 1:
        yield because(
            f"no request is left on {engine.name}",
            f"{len(engine.free)} of {len(engine.blocks) - 1} blocks are free",
            engine=engine.name,
        )


INVARIANT = Invariant(
    id="all_blocks_return",
    name="after all requests end, every block is free again",
    origin="vllm#46283",
    severity=Severity.LEAK,
    check=EachEngine(check),
    killed_by="aborted_load_never_frees",
)
