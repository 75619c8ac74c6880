"""Whether a break is the one that a fault makes, and not another one of the same invariant.

The model with the fault takes the same stimuli (see `witnesses`). What breaks there are the signs
of the fault: a machine shows the fault if the same check fails after the same kind of event, on the
same kind of cache group and the same engine.
"""

from collections.abc import Iterable, Sequence

from kvproof.gate.difference.judged import Break, Judgement, Key, followed
from kvproof.invariants.engines import DIED, WAITS
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import Reason, Value
from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, Event, Preempt, Schedule, bare, stimulus
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.finding import Finding
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import ModelMachine
from kvproof.model.severity import Severity
from kvproof.model.signature import Signature, signature
from kvproof.strategies.witnesses import broken_by


def on_the_model(
    cluster: Cluster, events: Iterable[Event], fault: Fault, known: Iterable[KnownFinding] = ()
) -> Judgement:
    """What breaks on the model with a fault that takes these stimuli: the signs of the fault."""
    with planted(fault):
        return followed(cluster, ModelMachine, events, known=known)


def trap(cluster: Cluster, events: Sequence[Event], fault: Fault) -> tuple[Event, ...]:
    """What a machine without a fault takes up to the place where the fault acts: the events before
    the first step that the model with the fault takes in another way, and this step as the
    reference takes it. `events` are stimuli that lead there."""
    wrong, right = ModelMachine(cluster), ModelMachine(cluster)
    led: list[Event] = []
    for event in map(stimulus, events):
        try:
            with planted(fault):
                one = wrong.take(event)
            other = right.take(event)
        except NotAllowed:
            break
        led.append(bare(other.event))
        if one.after != other.after or bare(one.event) != bare(other.event):
            break
    return tuple(led)


def departed(led: Sequence[Event], taken: Sequence[Event]) -> str:
    """The first request that these events serve and that a machine served in another way: it was
    not admitted, or with a hit or a load where the events have none (or the reverse), or it was not
    preempted. Empty if there is none. How many tokens a step computes is no other way."""
    ours, theirs = _served(led), _served(taken)
    for place, ways in ours.items():
        if ways != theirs.get(place, [])[: len(ways)]:
            return "{1} on {0}".format(*place)
    return ""


def _served(events: Sequence[Event]) -> dict[tuple[str, str], list[tuple[bool, ...]]]:
    """For each engine and request: whether each admission had a hit and a load, and `()` for each
    preemption."""
    found: dict[tuple[str, str], list[tuple[bool, ...]]] = {}
    steps = [event for event in events if isinstance(event, Schedule)]
    for event in steps:
        for choice in event.chose or ():
            if isinstance(choice, Admit):
                way: tuple[bool, ...] = (choice.local_hit > 0, choice.external > 0)
            elif isinstance(choice, Preempt):
                way = ()
            else:
                continue
            found.setdefault((event.engine, choice.request), []).append(way)
    return found


def made_by(fault: Fault, model: Judgement, found: Break) -> bool:
    """Whether a fault makes this break; `model` has the signs of the fault.

    A break that a known finding explains is of the fault of that name alone. Any other must be
    like a sign of the fault, and nothing else may have broken before it, except what the fault
    makes too and what is known to be mere bookkeeping: else it may be a consequence of that.
    """
    if found.by:
        return found.by == fault.name
    if found.signature.check not in broken_by(fault):
        return False
    if not any(_alike(fault, sign, found) for sign in model.breaks.values()):
        return False
    return all(key.by == fault.name or _expected(model, key) for key in found.after)


def _expected(model: Judgement, earlier: Key) -> bool:
    if earlier.by:
        return CHECKS[earlier.signature.check].severity == Severity.BOOKKEEPING
    return _kind(earlier.signature) in {_kind(key.signature) for key in model.breaks}


def _kind(found: Signature) -> Signature:
    """The signature; the last event of a run that does not end says nothing."""
    eventually = CHECKS[found.check].kind == "eventually"
    return found._replace(event="") if eventually else found


def _alike(fault: Fault, sign: Break, found: Break) -> bool:
    ours, theirs = sign.finding.about, found.finding.about
    if _kind(sign.signature) != _kind(found.signature) or ours.engine != theirs.engine:
        return False
    if bool(ours.request) != bool(theirs.request):
        return False
    if found.death:
        return any(
            each.facts.get("function") in fault.dies_in for each in found.finding.of_kind(DIED)
        )
    return _left(sign.finding) == _left(found.finding)


def _left(finding: Finding) -> set[tuple[Value, Value]]:
    """Of a run that does not end: on which engines something is left, and in which status."""
    if CHECKS[finding.invariant].kind != "eventually":
        return set()
    waits = (each.facts for each in finding.of_kind(WAITS))
    return {(each.get("engine"), each.get("status")) for each in waits}


def repeats(cluster: Cluster, event: Event, finding: Finding, found: Break) -> bool:
    """Whether a break repeats the finding at the last event of a trace: the same check after the
    same kind of event on the same kind of cache group and, for a death, in the same function."""
    recorded = signature(cluster, event, finding)
    if not finding.about.engine:  # it does not say what it is about
        recorded = recorded._replace(feature=found.signature.feature)
    if _kind(recorded) != _kind(found.signature):
        return False
    ours, theirs = finding.of_kind(DIED), found.finding.of_kind(DIED)
    return not ours or not theirs or _where(ours[0]) == _where(theirs[0])


def _where(death: Reason) -> tuple[Value, Value]:
    return death.facts.get("exception"), death.facts.get("function")
