"""Only the scheduler allocates blocks, in a scheduler step. Every other event may only free blocks.
A block that is allocated elsewhere is in no block table that the worker receives (vllm#48481)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.needs import Need
from kvproof.model.numbered import numbered
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """No block gains a reference outside a scheduler step."""
    if isinstance(step.event, Schedule):
        return
    for before, after in alive(step):
        for number, now in numbered(after.blocks):
            was = before.blocks[number]
            if number != NULL and now.refs > was.refs:
                yield because(
                    reason(
                        "may_not_allocate",
                        "{event} may not allocate blocks",
                        event=type(step.event).__name__,
                    ),
                    reason(
                        "gained_references",
                        "block {block} of {engine} has {references} references, {before} before",
                        references=now.refs,
                        before=was.refs,
                    ),
                    engine=after.name,
                    block=number,
                )


GUARD = Guard(
    id="only_a_step_takes_blocks",
    name="only a scheduler step allocates blocks",
    part="block pool",
    severity=Severity.LEAK,
    check=check,
    needs=(Need.GAINED_REFERENCES,),
)
