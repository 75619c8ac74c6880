"""A transfer in a wrong phase makes its receiver wait for blocks that never arrive, or its sender
for a report that is never sent. The permitted changes of phase are in `model.phases`."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.needs import Need
from kvproof.model.phases import allowed, way_of
from kvproof.model.severity import Severity
from kvproof.model.spec.guard import Guard
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each change of phase is one that the event permits."""
    if any(engine.dead for _, engine in step.touched):
        return
    for name in step.changed_transfers:
        was, now = step.before.phase(name), step.after.phase(name)
        if not allowed(way_of(cluster, name), was, step.event, now):
            yield because(
                reason(
                    "phase_was", "the phase of the transfer {name} was {was}", name=name, was=was
                ),
                reason(
                    "phase_is",
                    "after {event} it is {now}",
                    event=type(step.event).__name__,
                    now=now,
                ),
                engine=cluster.decode.name,
                request=name.removesuffix(REVERSE),
            )


GUARD = Guard(
    id="transfer_follows_the_table",
    name="a KV transfer changes its phase only as the table of transitions permits",
    part="connector",
    severity=Severity.HANG,
    check=check,
    needs=(Need.PHASES,),
)
