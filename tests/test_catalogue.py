"""The table of what is asked for names only invariants that there are. Guards have names of their
own."""

import re
from pathlib import Path

from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.spec.registry import GUARDS

TABLE = Path(__file__).parent.parent / "docs" / "reference" / "catalogue.md"
ROWS = [line.split("|")[1:-1] for line in TABLE.read_text("utf-8").splitlines() if "| I" in line]


def test_all_twenty_five_are_told() -> None:
    assert [row[0].strip() for row in ROWS] == [f"I{n}" for n in range(1, 26)]


def test_each_is_checked_or_has_a_reason() -> None:
    for _, asked, by, reason in ROWS:
        assert "`" in by or reason.strip(), asked


def test_the_named_invariants_are_there() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
    assert named <= set(INVARIANTS)


def test_guards_are_checks_beside_the_invariants() -> None:
    assert GUARDS
    assert not set(GUARDS) & set(INVARIANTS)
    assert set(CHECKS) == set(GUARDS) | set(INVARIANTS)
    for guard in GUARDS.values():
        check = CHECKS[guard.id]
        assert (check.name, check.severity, check.kind) == (guard.name, guard.severity, "guard")
        assert check.origin == f"the spec, {guard.part}"
