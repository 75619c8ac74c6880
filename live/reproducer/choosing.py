"""What a reproducer asserts: a fact that differs between head and base, nearest to the finding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvproof.invariants.every_request_can_finish import WAITS
from kvproof.invariants.step_makes_progress import COULD_SCHEDULE
from kvproof.live.reproducer.facts import NEAREST, NO_BASE, Fact, hangs, subjects
from kvproof.live.reproducer.pieces import Piece
from kvproof.model.events import Compute, Event, Preempt, Schedule
from kvproof.model.finding import Finding
from kvproof.model.subjects import Subject

BLOCK_IDS = (
    *(Subject.TABLE, Subject.CACHED, Subject.PREFIXES, Subject.REFERENCES),
    *(Subject.FREE, Subject.LOST, Subject.PARAMS),
)
"""Kinds of facts that say little about a cause: they differ wherever something differs."""

MAY_RAISE = (Subject.READ,)
"""Kinds of facts that are computed by functions of vLLM, which must not raise."""


MUST_NOT_RAISE = object()
"""Expected of a fact whose value is not known without a base: it must have one."""


class Observation(NamedTuple):
    """What was seen after one statement: the exception that it raised, or the value of each
    fact."""

    raised: str | None
    facts: Sequence[Any]


class Expectation(NamedTuple):
    """What a reproducer ends with: after this piece, `fact` has the value `expected`. Without a
    fact, the piece must not raise."""

    piece: int
    fact: Fact | None
    expected: Any
    found: Any


def has_value(value: Any) -> bool:
    """Whether a fact has a value."""
    return not (isinstance(value, dict) and value.get("none"))


def claims(
    finding: Finding,
    pieces: Sequence[Piece],
    facts: Sequence[Fact],
    head: Sequence[Observation],
    base: Sequence[Observation] | None,
) -> list[Expectation]:
    """The claims that hold on base and fail on head, the best first. Without base, those that hold
    on every vLLM."""
    last = len(head) - 1
    raises: list[Expectation] = []
    if head and head[last].raised and (base is None or _survives(base, last)):
        raises = [Expectation(last, None, None, head[last].raised)]
    if subjects(finding)[:1] == (Subject.RAISES,) and raises:
        return raises
    found: list[tuple[Any, Expectation]] = []
    for index, seen in enumerate(head):
        if base is None and hangs(finding) and index < len(pieces) - 1:
            continue  # what must happen may still happen
        if seen.raised or (base is not None and not _survives(base, index)):
            break
        values = base[index].facts if base is not None else [None] * len(facts)
        for fact, ours, theirs in zip(facts, seen.facts, values, strict=True):
            expected = _expected(finding, fact, theirs, base is None)
            if base is None and _dies_of(finding, fact, ours):
                expected = MUST_NOT_RAISE
            unseen = fact.of_step and not (
                pieces[index].step and pieces[index].engine == fact.engine
            )
            if unseen or expected is NO_BASE or ours == expected or not _is_conclusive(fact, ours):
                continue
            claim = Expectation(index, fact, expected, ours)
            found.append((_order(finding, pieces[index], claim), claim))
    return [claim for _, claim in sorted(found, key=lambda one: one[0])] + raises


def _survives(seen: Sequence[Observation], index: int) -> bool:
    return index < len(seen) and seen[index].raised is None


def _is_conclusive(fact: Fact, ours: Any) -> bool:
    return has_value(ours) or (fact.kind in MAY_RAISE and _dies(ours))


def _dies(value: Any) -> bool:
    """Whether a function of vLLM raised, and not the expression around it."""
    return not str(value.get("raised")).startswith(
        ("KeyError", "AttributeError", "NameError", "None")
    )


def _dies_of(finding: Finding, fact: Fact, ours: Any) -> bool:
    """Whether a function of vLLM raised where a fact is computed, and the finding is this death."""
    dead = Subject.RAISES in subjects(finding)
    return dead and fact.kind in MAY_RAISE and not has_value(ours) and _dies(ours)


def _expected(finding: Finding, fact: Fact, theirs: Any, alone: bool) -> Any:
    """The value that a fact must have."""
    speaks = fact.kind in subjects(finding)
    if alone:
        finishes = fact.kind is Subject.PRESENT and speaks and _waits(finding, fact)
        return False if finishes else fact.right if speaks else NO_BASE
    if fact.right is not NO_BASE and theirs != fact.right:
        return NO_BASE
    return theirs if has_value(theirs) else NO_BASE


def _waits(finding: Finding, fact: Fact) -> bool:
    """Whether a finding says that this request waits and nothing happens: then it must finish."""
    found = [each.facts for each in finding.of_kind(WAITS)]
    if (fact.engine, fact.request) in ((each.get("engine"), each.get("request")) for each in found):
        return True
    could = [each.facts.get("requests") for each in finding.of_kind(COULD_SCHEDULE)]
    waiting = {name for names in could if isinstance(names, tuple) for name in names}
    return fact.engine == finding.about.engine and fact.request in waiting


def _order(finding: Finding, piece: Piece, claim: Expectation) -> tuple[Any, ...]:
    """The sort key. First what is wrong on every vLLM, if the finding is about that; then facts
    about the same engine, request, group, and those that the invariant speaks of: a pull request
    may change others on purpose. Then the earliest, because what differs first is the cause."""
    fact, about = claim.fact, finding.about
    assert fact is not None
    nearest = subjects(finding)
    speaks = fact.kind in nearest
    apart = 4 * bool(about.engine and fact.engine != about.engine)
    apart += 2 * bool(about.request and fact.request and fact.request != about.request)
    apart += about.group is not None and fact.group is not None and fact.group != about.group
    rank = nearest.index(fact.kind) if speaks else len(nearest) + NEAREST[fact.kind]
    wrong = speaks and fact.right is not NO_BASE
    far = piece.engine != fact.engine
    vague = fact.kind in BLOCK_IDS and not speaks
    return not wrong, vague, apart, not speaks, claim.piece, far, rank


def departs(
    events: Sequence[Event],
    pieces: Sequence[Piece],
    facts: Sequence[Fact],
    head: Sequence[Observation],
) -> str:
    """Where a run of the statements does not follow the trace; empty where it does."""
    if not any(isinstance(e, Schedule) and e.chose for e in events):
        return ""
    for piece, seen in zip(pieces, head, strict=False):
        event = events[piece.event] if piece.event < len(events) else None
        if not piece.step or not isinstance(event, Schedule) or seen.raised:
            continue
        wanted = _computed(event)
        found = {
            fact.request: value
            for fact, value in zip(facts, seen.facts, strict=True)
            if fact.kind is Subject.SCHEDULED and fact.engine == event.engine and value
        }
        found = {name: value for name, value in found.items() if has_value(value)}
        if found != wanted:
            return (
                f"the statements do not follow the trace: in step {piece.event + 1} vLLM schedules "
                f"{found}, the trace has {wanted}"
            )
    return ""


def _computed(event: Schedule) -> dict[str, int]:
    """The tokens that each request computes in a step. One that is preempted later in the same step
    computes none."""
    tokens: dict[str, int] = {}
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            tokens[choice.request] = choice.tokens
        elif isinstance(choice, Preempt):
            tokens.pop(choice.request, None)
    return tokens
