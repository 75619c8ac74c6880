"""The table of all known findings. A new one is a decorated function in a module of this folder."""

import kvproof.live.known as package
from kvproof.model.discovery import modules
from kvproof.model.known_finding import KnownFinding, explaining
from kvproof.model.step import Effects, Step
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace import Trace


def _declared() -> dict[str, KnownFinding]:
    """The known findings of all modules beside this one, in the order of their names."""
    found: dict[str, KnownFinding] = {}
    for module in modules(package):
        values = vars(module).values()
        found |= {each.name: each for each in values if isinstance(each, KnownFinding)}
    return dict(sorted(found.items()))


KNOWN: dict[str, KnownFinding] = _declared()
"""The known findings by name."""


def recognised(trace: Trace) -> KnownFinding | None:
    """The known finding that explains the finding of a trace, as a search would recognise it at
    the last event. None where none does, where several do, where the trace has no states, and where
    the cause shows only in what a step does, which a trace does not have."""
    found = trace.finding
    if found is None or trace.machine != "live" or trace.changes is None:
        return None
    *_, before, after = map(restored, trace.states())
    step = Step(before, trace.events[-1], Effects(), after)
    explained = list(explaining(KNOWN.values(), trace.cluster, step, found))
    return explained[0] if len(explained) == 1 else None
