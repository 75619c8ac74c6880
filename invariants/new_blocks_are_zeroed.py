"""In a model with Mamba layers, attention blocks and states share their memory. An attention kernel
that reads a whole block meets the old values of a state in the slots that are not written yet, and
these may be no numbers at all. So the worker erases new attention blocks (vllm#35219), those of
windows included (vllm#51749)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import given_to_connector
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The worker erases each attention block that a step takes, but for those that the connector
    gets to fill. What is taken for a load is judged only where its transfer says what it gets."""
    event, zeroed = step.event, step.effects.zeroed
    if not isinstance(event, Schedule) or zeroed is None:
        return
    after, groups = step.after.engine(event.engine), cluster.engine(event.engine).groups
    if after.dead or all(group.attention for group in groups):
        return
    for choice in event.chose or ():
        request = after.find(choice.request)
        if not isinstance(choice, Admit | Compute) or request is None:
            continue
        for group, table, blocks in zip(groups, request.tables, choice.taken, strict=False):
            kept = [b for b in blocks if group.attention and b in table and b not in zeroed]
            given = given_to_connector(cluster, step.after, event.engine) if kept else {}
            if isinstance(choice, Admit) and request.id not in given.values():
                continue
            for block in kept:
                if block not in given:
                    yield because(
                        reason(
                            "takes_block",
                            "{request} on {engine} takes block {block} for "
                            "attention, beside Mamba groups",
                        ),
                        reason("not_erased", "the worker does not erase it"),
                        engine=after.name,
                        request=request.id,
                        block=block,
                    )


INVARIANT = Invariant(
    id="new_blocks_are_zeroed",
    name="beside Mamba groups, the worker erases each attention block that a step takes",
    origin="vllm#35219",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.ERASED, Need.ERASED_FOR_STATES),
    killed_by="windows_are_not_zeroed",
)
