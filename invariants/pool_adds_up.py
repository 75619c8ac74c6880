"""A block freed twice is in the queue twice, or with a negative count: the pool then hands out more
than it has, and dies much later in `get_new_blocks`, far from the culprit."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine, State


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Free + referenced + null = all, and the walk of the queue agrees with the counts."""
    unreferenced = {i for i, b in enumerate(engine.blocks) if b.refs == 0 and i != NULL}
    negative = [i for i, b in enumerate(engine.blocks) if b.refs < 0 and i != NULL]
    if negative:
        yield because(
            f"block {negative[0]} of {engine.name} was referenced by nobody any more",
            f"its count is {engine.blocks[negative[0]].refs}",
            engine=engine.name,
            block=negative[0],
        )
    elif len(engine.free) != len(unreferenced) or set(engine.free) != unreferenced:
        yield because(
            f"the queue of {engine.name} walks {list(engine.free)}",
            f"the blocks without references are {sorted(unreferenced)}",
            engine=engine.name,
        )


def margin(_cluster: Cluster, state: State) -> int:
    """Free blocks of the fullest pool."""
    return min(len(e.free) for e in state.engines)


INVARIANT = Invariant(
    id="pool_adds_up",
    name="free + referenced + null blocks are all blocks, and the queue holds each free block once",
    origin="vllm#42571",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    margin=margin,
    killed_by="double_free",
)
