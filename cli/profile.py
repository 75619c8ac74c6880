"""Which of the known findings a vLLM has. It is found out by following the trace of each on it,
which takes a few seconds."""

from collections.abc import Callable

from kvproof.gate.difference.judged import driven
from kvproof.gate.difference.workload import follow
from kvproof.invariants.registry import CHECKS
from kvproof.live.known import traces
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine
from kvproof.model.traces.trace import Trace
from kvproof.reports import live_line


def profile(make: Callable[[Cluster], Machine]) -> tuple[KnownFinding, ...]:
    """Return the known findings that may explain what is found on a vLLM: those that it has, and
    those whose trace cannot be followed on it. `make` makes a live machine of it."""
    live_line.show("following the traces of the known findings ...")
    found = ((KNOWN[name], trace) for name, trace in traces.all_of() if name in KNOWN)
    return tuple(known for known, trace in found if _may_be_there(known, trace, make))


def _may_be_there(known: KnownFinding, trace: Trace, make: Callable[[Cluster], Machine]) -> bool:
    try:
        run = follow(trace.cluster, known.name, trace.events)
        found = driven(run, make, CHECKS.values(), [known])
    except (AdapterDrift, Exception):  # also a mistake of the adapter on this vLLM
        return True
    return any(key.by == known.name for key in found.breaks)


def without_trace() -> list[str]:
    """Return the known findings that no search uses, because nothing shows whether a vLLM has
    them."""
    return sorted(KNOWN.keys() - {path.parent.name for path in traces.paths()})
