"""The scripts of benchmarks/ that make a page or print a table, and the pages that they made."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import checks as all_checks
from benchmarks import combinations as combined
from benchmarks import matrix, remedies
from benchmarks.digest import __main__ as digest
from benchmarks.planted import answers, page
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


def test_each_engine_finds_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["front_trim", "--examples", "50"]) == 0
    title, *engines, last = capsys.readouterr().out.splitlines()
    assert title.startswith("front_trim (cluster ")
    assert [line.split()[0] for line in engines] == ["explore", "sample", "prove"]
    assert not any(line.split()[1] == "-" for line in engines)
    assert last.endswith(": none.")


def test_a_fault_that_no_engine_finds_is_red_and_a_cut_search_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["state_only_at_last_boundary", "--config", "full", "--examples", "2"]
    assert matrix.main(argv) == 1
    assert capsys.readouterr().out.endswith(": state_only_at_last_boundary.\n")
    assert matrix.main([*argv, "--states-max", "3"]) == 3


def test_a_violation_without_a_fault_is_red() -> None:
    found = matrix.row(None, "full", 2, 100)._replace(name="odd")
    assert found.verdict is matrix.Verdict.VIOLATED  # no engine finds this fault
    assert found._replace(name=matrix.NO_FAULT).verdict is matrix.Verdict.SAMPLED


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


def test_the_page_says_how_many_planted_changes_were_run_and_what_is_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(answers, "FILE", tmp_path / "answers.json")
    first, second, third = [each for each in mistakes() if each.mended][:3]
    answers.keep(first, answered("VIOLATED", kind="introduced", invariant="room_is_used"))
    answers.keep(second, answered("SAMPLED"))
    answers.keep(third._replace(new="pass"), answered("COSTS"))
    fourth = next(each for each in mistakes() if each.kind == "masked")
    answers.keep(fourth, answered("UNKNOWN"))  # too little processor time
    page.write(tmp_path / "planted.md")
    text = (tmp_path / "planted.md").read_text(encoding="utf-8")
    losses = sum(each.kind == "losses" for each in mistakes())
    assert f"## Losses: 2 of {losses} were run" in text  # the third was changed since
    assert "## Masked: 0 of " in text
    assert (
        "**Right: 1 of 2** (SAMPLED 1, VIOLATED 1). Of 2 that take a mend back, 1 are red." in text
    )
    assert f"| {first.about} | VIOLATED | `room_is_used` | 12 (20) | 2026-11-29 |" in text


def answered(verdict: str, **finding: str) -> answers.Answer:
    """What a gate says."""
    findings = [{"fails": True, **finding}] if finding else []
    times = {"seconds": 12.3, "processor_s": 20.1, "budget_s": 300}
    about = {"exit_code": 0, "date": "2026-11-29", "kvproof": "abc", "seed": 0, **times}
    return {"verdict": verdict, "findings": findings, **about}


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


# The page of combinations


PAGE = Path(__file__).parent.parent / "reports" / "combinations.md"
FEW = [
    ("sessions", "extra_keys"),
    ("store", "embeddings"),
    ("oversized", "pd"),
    ("push", "follow_up_turns"),
    ("push", "kernel_blocks"),
    ("store", "push"),
    ("retention", "no_prefix_cache"),
    ("eagle", "partial_block_hits"),
]


def marks(version: str) -> dict[frozenset[str], str]:
    """The mark of each pair in the table of a release."""
    text = PAGE.read_text(encoding="utf-8").split(f"## Pairs on {version}\n")[1]
    rows = re.findall(r"^\| \d+ (\w+) \|(.*)\|$", text.split("###")[0], re.MULTILINE)
    names = [name for name, _ in rows]
    found = {}
    for name, cells in rows:
        for other, cell in zip(names, cells.split("|"), strict=True):
            if cell.strip():
                found[frozenset((other, name))] = cell.strip()
    return found


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_the_page_has_each_pair(version: str) -> None:
    found = marks(version)
    assert found.keys() == {frozenset(pair) for pair in combinations(combined.IDS, 2)}
    assert set(found.values()) <= set(combined.MARKS.values())


@pytest.mark.live
@pytest.mark.parametrize("pair", FEW, ids="+".join)
def test_this_vllm_agrees_with_the_page(pair: tuple[str, ...]) -> None:
    from vllm import __version__

    version = __version__.split("+")[0]
    if version not in ("0.32.0", "0.33.0"):
        pytest.skip(f"the page has tables of 0.32.0 and 0.33.0, and this is vLLM {version}")
    ordered = tuple(sorted(pair, key=combined.IDS.index))
    kind, why = combined.combination(ordered)
    assert combined.MARKS[kind] == marks(version)[frozenset(pair)], why
