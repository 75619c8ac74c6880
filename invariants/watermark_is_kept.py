"""With a watermark, an admission beside running requests leaves blocks free, so that these requests
can grow (vllm#44594). If an admission takes these blocks, the requests that run preempt each other
soon.

The invariant does not judge the first request of an idle engine, which may take all blocks. It does
not judge a step in which a prediction is wrong: `predicted_is_taken` reports that.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.step import Step


def _admitted_beside_others(before: Engine, event: Schedule) -> list[str]:
    """The requests that take their first blocks, or run on after a load, while another runs."""
    running, admitted = list(before.running), []
    for choice in event.chose or ():
        name = choice.request
        if not isinstance(choice, Admit | Compute) or name in running:
            continue
        if running:
            admitted.append(name)
        if isinstance(choice, Compute):
            running.append(name)
    return admitted


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """After an admission beside running requests, the blocks of the watermark are free."""
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).watermark_blocks:
        return
    after, kept = step.after.engine(event.engine), cluster.engine(event.engine).watermark_blocks
    exact = all(a.predicted == a.taken for a in step.effects.allocations)
    admitted = _admitted_beside_others(step.before.engine(event.engine), event)
    if admitted and exact and not after.dead and len(after.free) < kept:
        yield because(
            reason(
                "leaves_free",
                "an admission on {engine} beside running requests leaves {kept} blocks free",
                kept=kept,
            ),
            reason(
                "admitted",
                "{requests:names} is admitted, and {free} blocks are free",
                requests=dict.fromkeys(admitted),
                free=len(after.free),
            ),
            engine=after.name,
            request=admitted[-1],
        )


INVARIANT = Invariant(
    id="watermark_is_kept",
    name="an admission beside running requests leaves the blocks of the watermark free",
    origin="vllm#44594",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.WATERMARK,),
    killed_by="watermark_is_ignored",
)
