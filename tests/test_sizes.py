"""The table of small mutants of the rules of arithmetic is the one of the rules as they are."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.sizes.mutants import RULES, Mutant, mutants, smallest
from benchmarks.sizes.table import EQUAL, OPEN, TITLE, called, outside, page, row, told_apart
from kvproof.model.arithmetic import counts
from kvproof.model.presets import CLUSTERS, cluster_named

pytestmark = pytest.mark.proof

COMMITTED = Path(__file__).parent.parent / "reports" / "sizes.md"
EVERY = 60
"""One of so many rows is derived again."""


@pytest.fixture(scope="module")
def kept() -> str:
    return COMMITTED.read_text(encoding="utf-8")


def rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table, each with its rule."""
    rule = ""
    for line in text.splitlines():
        if line.startswith("## "):
            rule = line.split("`")[1]
        if line.startswith("| `"):
            yield rule, [cell.strip() for cell in line.strip("|").split("|")]


def every() -> list[Mutant]:
    return [each for rule in RULES for each in mutants(rule)]


def test_every_mutant_of_every_rule_has_its_row(kept: str) -> None:
    there = [f"{rule}:{c[0]}: {c[1]} -> {c[2]}".replace("`", "") for rule, c in rows(kept)]
    assert there == [each.name for each in every()]


def test_the_numbers_of_a_row_tell_the_mutant_from_its_rule(kept: str) -> None:
    for each, (_, cells) in zip(every(), rows(kept), strict=True):
        numbers = {n: int(v) for n, v in re.findall(r"(\w+) (\d+)", cells[3])}
        assert each.differs(**numbers) if numbers else EQUAL in cells[-1]


def test_no_row_is_open(kept: str) -> None:
    assert [c for _, c in rows(kept) if OPEN in c[-1]] == []


@pytest.mark.parametrize("place", range(EVERY // 2, 578, EVERY))
def test_z3_finds_these_sizes_again(place: int, kept: str) -> None:
    each = every()[place]
    cells = next(islice(rows(kept), place, None))[1]
    assert smallest(each).text == cells[3]
