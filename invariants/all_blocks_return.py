"""D loads blocks from P, and the user aborts the request during the load. The engine keeps the
blocks until the load completes. When the completion arrived late, the engine never freed them
(vllm#32255, review; vllm#46283). Each such abort makes the pool smaller, until no request can be
admitted."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """An engine without requests and steps in flight has every block free except the null block."""
    if not engine.requests and not engine.steps and len(engine.free) != len(engine.blocks) - 1:
        yield because(
            reason("no_request_left", "{engine} has no request left"),
            reason(
                "free_blocks",
                "{free} of its {pool} blocks are free",
                free=len(engine.free),
                pool=len(engine.blocks) - 1,
            ),
            engine=engine.name,
        )


INVARIANT = Invariant(
    id="all_blocks_return",
    name="after all requests end, every block except the null block is free again",
    origin="vllm#46283",
    severity=Severity.LEAK,
    check=EachEngine(check),
    needs=(Need.FREE_WHEN_IDLE,),
    subjects=(Subject.LOST, Subject.FREE),
    killed_by="aborted_load_never_frees",
)
