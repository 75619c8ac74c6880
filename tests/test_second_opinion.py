"""kvproof prove --cross: what is proved is asked of cvc5 as well, and its answer is told."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.strategies.symbolic import cross, cross_process, second_opinion
from kvproof.strategies.symbolic.cross import AGREES, DISAGREES, UNKNOWN

pytestmark = pytest.mark.proof

NOTHING_WRONG = "(set-logic ALL)\n(declare-const n Int)\n(assert (= n 7))\n(check-sat)\n"


def test_prove_with_a_second_opinion(run: Any) -> None:
    pytest.importorskip("cvc5")
    some = ("--obligation", "truncated_once", "--obligation", "pool.pool_adds_up", "--cross")
    code, out, _ = run("prove", *some)
    assert code == 0
    assert [line.rsplit("; ", 1)[-1] for line in out.splitlines()[:2]] == ["cvc5 agrees"] * 2
    assert "of 3 queries, cvc5 agrees on 3, disagrees on 0, does not know 0" in out
    _, out, _ = run("prove", *some, "--json")
    record = json.loads(out)
    assert record["second_opinion"] == {"questions": 3, AGREES: 3, UNKNOWN: 0, DISAGREES: 0}
    assert [o["second_opinion"]["answer"] for o in record["obligations"]] == [AGREES, AGREES]


def test_only_what_is_proved_is_asked_again(run: Any) -> None:
    pytest.importorskip("cvc5")
    some = ("--obligation", "trim_equal_positions", "--obligation", "truncated_once")
    code, out, _ = run("prove", *some, "--fault", "front_trim", "--cross", "--json")
    said = [o["second_opinion"] for o in json.loads(out)["obligations"]]
    assert code == 1
    assert said[0] is None
    assert said[1]["answer"] == AGREES


def test_a_disagreement_is_red(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cvc5")
    monkeypatch.setattr(second_opinion, "certificate", lambda *_: NOTHING_WRONG)
    code, out, _ = run("prove", "--obligation", "truncated_once", "--cross")
    assert code == 1
    assert "cvc5 DISAGREES on 1 of 1 (truncated_once)" in out
    assert "cvc5 says that this does: n = 7" in out
    assert "one of the two solvers is wrong" in out
    assert out.splitlines()[-1].startswith("VIOLATED")
    code, out, _ = run("prove", "--obligation", "truncated_once", "--cross", "--json")
    record = json.loads(out)
    assert (code, record["verdict"], record["invariant"]) == (1, "VIOLATED", "second_opinion")
    assert record["obligations"][0]["second_opinion"][DISAGREES] == ["truncated_once"]


def test_an_unknown_opinion_is_told_and_changes_no_verdict(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cvc5")
    gave_up = cross.Opinion(UNKNOWN, "cvc5 gave up: timeout", {}, 0.0)
    monkeypatch.setattr(cross_process.Other, "second_opinion", lambda *_: gave_up)
    code, out, _ = run("prove", "--obligation", "pool.pool_adds_up", "--cross")
    assert code == 0
    assert "PROVED   pool.pool_adds_up" in out
    assert "second opinion: unknown for 2 of 2 (pool.pool_adds_up.start, " in out
    assert "agrees on 0, disagrees on 0, does not know 2" in out


def test_without_cvc5_nothing_is_proved_or_written(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    monkeypatch.setattr("kvproof.cli.prove.prove", lambda *_: pytest.fail("it proved"))
    code, out, err = run("prove", "--cross", "--certificates", str(tmp_path / "new"))
    assert (code, out) == (2, "")
    assert "pip install 'kvproof[cross]'" in err
    assert not (tmp_path / "new").exists()


def test_a_crash_of_cvc5_is_an_unknown_opinion_and_the_next_question_is_answered() -> None:
    pytest.importorskip("cvc5")
    with cross_process.other() as cvc5:
        assert cvc5.second_opinion(NOTHING_WRONG, 10.0).answer == DISAGREES
        assert cvc5.process is not None
        cvc5.process.kill()
        crashed = cvc5.second_opinion(NOTHING_WRONG, 10.0)
        assert (crashed.answer, crashed.reason) == (UNKNOWN, "cvc5 crashed (-9)")
        assert cvc5.second_opinion(NOTHING_WRONG, 10.0).numbers == {"n": 7}
