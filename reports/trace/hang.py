"""This module says why a hang goes on: which events repeat, and who waits for what after them."""

from contextlib import suppress
from typing import NamedTuple

from kvproof.model.errors import NotAllowed
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace import Trace
from kvproof.strategies.waits import HangContext, Wait, repeats, waits

STUCK = ("every_request_can_finish", "step_makes_progress")
"""The invariants that say that a run goes on."""


class Hang(NamedTuple):
    """Why a run does not go on. `begins` is the number of the first event that repeats without end,
    None where no events repeat. `waits` are the requests that wait, those that a step refuses
    first. `printed` says whether the reasons of the finding say all this: with the numbers of vLLM
    itself, where it has some."""

    begins: int | None
    waits: tuple[Wait, ...]
    printed: bool = False


def hang_of(trace: Trace) -> Hang | None:
    """Say why the run of a trace does not go on; None if its finding is something else, or if its
    states were not recorded."""
    if trace.finding is None or trace.finding.invariant not in STUCK or trace.changes is None:
        return None
    states = list(trace.states())
    begins = repeats(states)
    loop = () if begins is None else trace.events[begins:]
    faults = [FAULTS[name] for name in trace.faults if name in FAULTS]
    with planted(*faults), suppress(NotAllowed):
        context = HangContext(loop, live=trace.machine == "live")
        found = waits(trace.cluster, restored(states[-1]), context)
        printed = trace.finding.invariant == STUCK[0] and bool(trace.finding.about.request)
        return Hang(None if begins is None else begins + 1, found, printed)
    return None
