"""The page of small mutants of the arithmetic has every mutant, and its rows are true."""

import re
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from benchmarks.sizes.mutants import RULES, Mutant, kinds, mutants, smallest
from benchmarks.sizes.table import (
    EQUAL,
    OPEN,
    RESULT,
    USED,
    called,
    noticed,
    rows,
)
from kvproof.model.presets import CLUSTERS, cluster_named

pytestmark = pytest.mark.proof

PAGE = Path(__file__).parent.parent / "reports" / "sizes.md"
ROWS = list(rows(PAGE.read_text(encoding="utf-8")))
MUTANTS: list[Mutant] = [each for rule in RULES for each in mutants(rule)]
ON_VLLM = [set(re.findall(r"\w+", cells[-1])) for _, cells in ROWS]
"""For each mutant the functions of vLLM that have a case at which it differs from its rule."""

EVERY = 45
"""One of so many rows is derived again."""


def test_every_mutant_of_every_rule_has_its_row() -> None:
    assert [name for name, _ in ROWS] == [each.name for each in MUTANTS]


def test_the_sizes_of_each_row_tell_the_mutant_from_its_rule() -> None:
    for each, (_, cells) in zip(MUTANTS, ROWS, strict=True):
        kind = kinds(each.rule)
        found = re.findall(r"(\w+) (\d+)", cells[3])
        numbers = {n: bool(int(v)) if kind[n] == "Truth" else int(v) for n, v in found}
        assert each.differs(**numbers) if numbers else cells[RESULT].startswith((EQUAL, USED))


def test_no_row_is_open() -> None:
    assert all(cells[RESULT] != OPEN for _, cells in ROWS)


@pytest.mark.parametrize("number", range(0, len(MUTANTS), EVERY))
def test_z3_finds_these_sizes_again(number: int) -> None:
    assert smallest(MUTANTS[number]).text == ROWS[number][1][3]


def derived() -> list[tuple[Mutant, str, str]]:
    """Every so many rows of those that a check of a preset tells apart."""
    found = [
        (each, cells[4].strip("`"), cells[RESULT].strip("`"))
        for each, (_, cells) in zip(MUTANTS, ROWS, strict=True)
        if cells[RESULT].startswith("`") and cells[4].strip("`") in CLUSTERS
    ]
    return list(islice(found, 0, None, EVERY))


@pytest.mark.parametrize(("mutant", "cluster", "check"), derived(), ids=lambda v: str(v)[:60])
def test_a_check_notices_the_mutant_in_this_cluster(
    mutant: Mutant, cluster: str, check: str
) -> None:
    by = noticed(mutant, called([cluster_named(cluster)]))
    assert by is not None
    assert by.check == check
