"""Blocks are given out by the scheduler, within a step. Whatever else happens may only give blocks
back: what is taken elsewhere is in no block table that the worker is sent (vllm#48481)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule, describe
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Outside a step no block gains a reference."""
    if isinstance(step.event, Schedule):
        return
    for before, after in alive(step):
        for number, (was, now) in enumerate(zip(before.blocks, after.blocks, strict=True)):
            if number != NULL and now.refs > was.refs:
                yield because(
                    f"{describe(step.event)} gives out no blocks",
                    f"block {number} of {after.name} has {now.refs} references, and had {was.refs}",
                    engine=after.name,
                    block=number,
                )


GUARD = Guard(
    id="only_a_step_takes_blocks",
    name="no event but a scheduler step gives out blocks",
    part="block pool",
    severity=Severity.LEAK,
    check=check,
)
