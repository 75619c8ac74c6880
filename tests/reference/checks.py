"""The invariants and the guards: what each says, and the scenario that it is there for."""

from collections.abc import Iterator
from itertools import groupby

from kvproof.invariants.registry import GUARDS, INVARIANTS
from tests.reference.markdown import paragraphs


def invariants() -> str:
    """All invariants by severity, the gravest first."""
    return "\n\n".join(_invariants())


def _invariants() -> Iterator[str]:
    for severity, group in groupby(INVARIANTS.values(), key=lambda each: each.severity):
        assert severity is not None
        yield f"## {severity.words.capitalize()}"
        for each in group:
            yield f"### `{each.id}`"
            yield f"It must be true that {each.name}."
            yield paragraphs(each.story)
            when = "" if each.kind == "always" else " Asked of whole runs and graphs of states."
            broken = f"Broken by the fault `{each.killed_by}`."
            ideal = "An ideal: only pairs of base and head are judged by it."
            yield f"Origin: {each.origin}. {ideal if each.ideal else broken}{when}"


def guards() -> str:
    """All guards by name."""
    return "\n\n".join(
        f"### `{guard.id}`\n\nIt must be true that {guard.name}.\n\n"
        f"{paragraphs(guard.story)}\n\n"
        f"Part of vLLM: {guard.part}. Severity: {guard.severity.words}."
        for guard in GUARDS.values()
    )
