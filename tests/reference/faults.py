"""The faults: each mistake, and what finds it."""

from kvproof.model.faults.registry import FAULTS
from tests.reference.markdown import code, table

HEAD = ("fault", "origin", "mistake", "breaks", "cluster", "events")


def faults() -> str:
    """A line for each fault."""
    return table(
        HEAD,
        (
            (
                code(fault.name),
                fault.origin,
                fault.mistake,
                code(*fault.breaks),
                fault.cluster,
                str(fault.trace_events),
            )
            for fault in FAULTS.values()
        ),
    )
