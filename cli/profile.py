"""The profile of a vLLM: which of the known findings it has.

It is found out by following the trace of each on it, which takes a few seconds.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvproof.gate.difference.judged import followed
from kvproof.invariants.registry import CHECKS
from kvproof.live.known import traces
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine
from kvproof.reports import live_line

Make = Callable[[Cluster], Machine]


class Profile(NamedTuple):
    """The names of the known findings that a vLLM has, and of those whose trace cannot be
    followed on it."""

    has: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def known(self) -> list[KnownFinding]:
        """The known findings that may explain what is found on this vLLM."""
        return [KNOWN[name] for name in (*self.has, *self.unknown) if name in KNOWN]


def inferred(make: Make) -> Profile:
    """Follow the traces, and return the profile that they show. `make` makes a live machine of the
    vLLM that this process has imported."""
    live_line.show("following the traces of the known findings ...")
    has, unknown = [], []
    for name, trace in traces.all_of():
        if name not in KNOWN:
            continue
        try:
            found = followed(trace.cluster, make, trace.events, CHECKS.values(), [KNOWN[name]])
        except (AdapterDrift, Exception):  # also a mistake of the adapter on this vLLM
            unknown.append(name)
            continue
        if any(key.by == name for key in found.breaks):
            has.append(name)
    return Profile(tuple(has), tuple(unknown))


def without_trace() -> list[str]:
    """Return the known findings that no search uses, because nothing shows whether a vLLM has
    them."""
    return sorted(KNOWN.keys() - {path.parent.name for path in traces.paths()})
