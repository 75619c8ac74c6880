"""Where each check is asked: on which machines, and why not on the others."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS, lacking
from kvproof.model.faults.registry import FAULTS
from kvproof.model.needs import Need
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.strategies.joined import SHOWN
from kvproof.watch.shown import Views
from tests.reference.markdown import table
from tests.refuted import all_refuted

PROVED_SHOWN = 2
"""So many claims are named; the others are counted."""


NO_CLAIM = "no claim about counts"


class Row(NamedTuple):
    """A check, what it needs, and for each machine whether it is asked there, or why not."""

    check: str
    needs: str
    model: str
    driven: str
    watched: str
    joined: str
    proved: str


def claims_about(check: str) -> tuple[str, ...]:
    """The obligations and the claims that a fault refutes which breaks this check: they are proved
    for all sizes."""
    breaking = {fault.name: fault for fault in FAULTS.values() if check in fault.breaks}
    refuted = [each.id for each in OBLIGATIONS.values() if each.killed_by in breaking]
    refuted += sorted(claim for fault in breaking for claim in all_refuted(fault))
    return tuple(dict.fromkeys(refuted))


def rows() -> Iterator[Row]:
    """A row for each check. The model and a driven vLLM show their whole state."""
    watched = [view.shows for view in Views]
    for check in CHECKS.values():
        whole = "asked" if check.kind != "eventually" else "asked at the end of runs"
        needs = _words(check.needs)
        yield Row(
            *(check.id, needs, whole, whole),
            *(_shown(check, *watched), _shown(check, SHOWN), _proved(check)),
        )


def _shown(check: Check, *views: frozenset[Need]) -> str:
    return "not shown" if lacking(check, *views) else "asked"


def _proved(check: Check) -> str:
    claims = claims_about(check.id)
    more = len(claims) - PROVED_SHOWN
    named = ", ".join(f"`{each}`" for each in claims[:PROVED_SHOWN])
    return f"in part: {named}{f' and {more} more' if more > 0 else ''}" if claims else NO_CLAIM


def checks() -> str:
    """The table of all checks."""
    names = ("check", "needs", "model", "driven vLLM", "watched vLLM", "two records", "proved")
    return table(names, [(f"`{row.check}`", *row[1:]) for row in rows()])


def views() -> str:
    """What a watcher shows of an engine."""
    return table(
        ("view", "facts", "checks"),
        [
            (
                f"`{view.name}`",
                _words(need for need in Need if need in view.shows),
                ", ".join(f"`{check.id}`" for check in view.checks),
            )
            for view in Views
        ],
    )


def _words(needs: Iterable[Need]) -> str:
    return "; ".join(need.value for need in needs)
