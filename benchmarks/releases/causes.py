"""What broke an invariant on a release: the records of its survey, by cause.

A break has a cause if a known finding explains it, if a run that was made to show a fault shows
this fault, or if it has the signature of a fault that such a run shows on the same release. A break
after others in its run may be their consequence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.severity import Severity

Record = Mapping[str, Any]

DEATH = "engine_survives"


class Caused(NamedTuple):
    """A break of a survey, with its record. `cause` is the name of a finding or of a fault, or
    empty. `behind` is what broke first in the run if something did: a cause, or an invariant."""

    record: Record
    broken: Record
    cause: str
    behind: str

    @property
    def order(self) -> tuple[bool, bool, int]:
        """The sort key: breaks with nothing before them first, then named ones, then short runs."""
        return bool(self.behind), not self.cause, self.broken["events"]

    @property
    def label(self) -> str:
        """The cause in words."""
        if self.cause:
            return self.cause
        return f"after {self.behind}" if self.behind else "no known cause"


def shape(broken: Record) -> tuple[str, str, str, str]:
    """What makes two breaks alike: invariant, kind of event, kind of cache group, death."""
    return broken["invariant"], broken["event"], broken["feature"], broken["death"]


def all_breaks(records: Iterable[Record]) -> Iterator[Caused]:
    """All breaks of a survey with their causes.

    A death after a report that no shipped worker makes is left out: it says nothing about an engine
    in use. (The finding about such reports has its own row.)
    """
    known = list(records)
    shown = {
        shape(broken): record["fault"]
        for record in known
        if "fault" in record
        for broken in record.get("broken", ())
        if broken["own"]
    }
    for record in known:
        for broken in record.get("broken", ()):
            if broken["invariant"] == DEATH and broken["stray"]:
                continue
            own = record.get("fault", "") if broken["own"] else ""
            cause = broken["by"] or own or shown.get(shape(broken), "")
            yield Caused(record, broken, cause, _behind(record, broken))


def _behind(record: Record, broken: Record) -> str:
    """What broke first in the run of a break: a known cause, or an invariant. What is known to be
    mere bookkeeping has no consequences. What breaks without a known reason at the event at which
    a fault shows, or after it, is behind that fault."""
    for first in broken["after"]:
        severity = INVARIANTS[first["invariant"]].severity
        if not first["by"] or severity != Severity.BOOKKEEPING:
            return str(first["by"] or first["invariant"])
    shown = [b["events"] for b in record.get("broken", ()) if b["own"]]
    if record["kind"] == "followed" and shown and not broken["own"] and not broken["by"]:
        return str(record.get("fault", "")) if min(shown) <= broken["events"] else ""
    return ""


def of_invariant(records: Iterable[Record], invariant: str) -> list[Caused]:
    """The breaks of an invariant, the one to name first."""
    found = (each for each in all_breaks(records) if each.broken["invariant"] == invariant)
    return sorted(found, key=lambda each: each.order)


def causes(found: Sequence[Caused]) -> tuple[str, ...]:
    """The causes of these breaks in their order. What broke only after others in every run is an
    after-effect of these; otherwise after-effects are left out."""
    first = [each for each in found if not each.behind] or found
    return tuple(dict.fromkeys(each.label for each in first))


def without_cause(records: Iterable[Record]) -> Iterator[str]:
    """The breaks that nothing explains and that nothing precedes, each in one line."""
    for each in all_breaks(records):
        if not each.cause and not each.behind:
            invariant, event, feature, death = shape(each.broken)
            kind = f" ({feature})" if feature else ""
            yield f"{invariant} after {event}{kind}" + (f": {death}" if death else "")
