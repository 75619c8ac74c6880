"""The scripts of benchmarks/ that make a page or print a table, and the pages that they made."""

import json
from pathlib import Path

import pytest

from benchmarks import checks as all_checks
from benchmarks import remedies
from benchmarks.digest import __main__ as digest
from benchmarks.planted.chooser import installed
from benchmarks.planted.mistakes import changed, mistakes, out_of_order
from kvproof.invariants.hits import computed_tokens_are_cached
from kvproof.invariants.registry import CHECKS
from tests.mistakes_of_pairs import MISTAKES as OF_PAIRS
from tests.processes import python

ROOT = Path(__file__).parent.parent

NOT_FOUND = {
    "embedded_turn_is_loaded_whole",
    "failed_session_keeps_tokens",
    "salted_store_holds_twice",
    "sparse_store_holds_twice",
}
"""The mistakes of pairs of features that the default search does not find
(reports/planted_pairs.md)."""


def test_the_table_of_remedies_is_what_is_measured() -> None:
    page = (ROOT / "docs" / "explanation" / "remedies.md").read_text(encoding="utf-8")
    assert "\n".join(remedies.lines()) in page


@pytest.mark.live
@pytest.mark.nightly
@pytest.mark.parametrize("mistake", sorted({*OF_PAIRS} - NOT_FOUND))
def test_the_default_search_finds_a_mistake_of_a_pair_of_features(mistake: str) -> None:
    done = python(ROOT / "benchmarks" / "pairs.py", mistake)
    assert done.returncode == 0, done.stderr
    check, _ = json.loads(done.stdout.splitlines()[-1])
    assert check, "nothing breaks"


# Planted changes of vLLM


@pytest.mark.live
def test_planted_changes_stand_once_in_their_function_and_follow_the_draw() -> None:
    package = installed()
    assert len({mistake.name for mistake in mistakes()}) == len(mistakes())
    assert all(compile(changed(mistake, package), "", "exec") for mistake in mistakes())
    assert list(out_of_order(package)) == []


@pytest.mark.live
def test_each_change_of_the_digest_can_be_made_and_the_page_has_the_answers() -> None:
    package, known = installed(), digest.changes()
    assert [sum(each.effect == effect for each in known) for effect in (False, True)] == [12, 12]
    for each in known:
        source = each.source(package)
        compile(source, each.file, "exec")
        assert source != (package / each.file).read_text(encoding="utf-8")
    assert digest.PAGE.read_text(encoding="utf-8") == "\n".join(digest.page())


# The page of checks


def test_the_excuses_of_a_check_are_read_from_what_it_calls() -> None:
    words = {excuse.says for excuse in all_checks.source_of(computed_tokens_are_cached).excuses}
    assert "the window has gone on since" in words
    for check in CHECKS.values():
        assert all_checks.source_of(check).excuses or not check.ideal, check.id
