"""Certificates say what was asked; as texts alone they prove the spec, and refute what is wrong."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import z3

from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.certificate import certificates, write_certificates
from kvproof.proofs.induction import claimed, steps
from kvproof.proofs.registry import OBLIGATIONS
from tests.planted import under

pytestmark = pytest.mark.proof

HANDFUL = (
    "truncated_once",
    "trim_equal_positions",
    "window_offer_is_enough",
    "growth_is_exact",
    "pool.held_is_referenced",
    "transfer_of_mamba.lists_are_equally_long",
)


def z3_says(text: str) -> str:
    solver = z3.Solver(ctx=z3.Context())
    solver.from_string(text)
    return str(solver.check())


def asked(name: str) -> list[str]:
    return [text for _, text in certificates([name])]


def test_there_is_one_question_for_each_step_of_each_claim() -> None:
    names = [name for name, _ in certificates()]
    of_steps = sum(len(steps(c.system)) for c in claimed().values())
    assert len(names) == len(set(names)) == len(OBLIGATIONS) + of_steps > 700
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz_0123456789.") for name in names)


@pytest.mark.parametrize("name", HANDFUL)
def test_a_certificate_has_nothing_that_breaks_the_spec(name: str) -> None:
    texts = asked(name)
    assert len(texts) == (1 if name in OBLIGATIONS else len(steps(claimed()[name].system)))
    for text in texts:
        assert z3_says(text) == "unsat"


def test_a_certificate_says_what_it_is_about() -> None:
    start, move = asked("pool.held_is_referenced")
    head = move.splitlines()[:5]
    assert head[0].startswith("; kvproof ")
    assert head[1] == "; pool.held_is_referenced, step move"
    assert head[2] == f"; claimed: {claimed()['pool.held_is_referenced'].name}"
    assert "expected: unsat" in head[3]
    assert head[4] == "(set-logic ALL)"
    assert move.endswith("(check-sat)\n")
    assert "(declare-fun chosen_taken () Int)" in move
    assert "chosen" not in start


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("front_trim", "trim_equal_positions"),
        ("decode_loads_whole_prompt", "delivered_is_counted"),
        ("double_free", "pool.held_is_referenced"),
        ("truncation_without_guard", "full.truncated_once"),
    ],
)
def test_a_certificate_of_a_wrong_rule_is_refuted(fault: str, name: str) -> None:
    faults = [FAULTS[fault]]
    texts = under(faults, asked, name)
    found = [z3_says(text) for text in texts]
    assert "sat" in found
    assert set(found) <= {"sat", "unsat"}


def test_certificates_are_written_and_nothing_is_overwritten(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "certificates"
    some = ("--obligation", "truncated_once", "--obligation", "pool.pool_adds_up")
    code, out, _ = run("prove", *some, "--certificates", str(folder))
    assert code == 0
    assert f"3 certificates are in {folder}" in out
    names = ["pool.pool_adds_up.move", "pool.pool_adds_up.start", "truncated_once"]
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"{name}.smt2" for name in names]
    assert files[2].read_text() == asked("truncated_once")[0]
    before = [path.stat().st_mtime_ns for path in files]
    for wanted, said in ((folder, "is not empty"), (files[0], "Not a directory")):
        code, out, err = run("prove", *some, "--certificates", str(wanted))
        assert (code, out) == (2, "")
        assert said in err
    assert [path.stat().st_mtime_ns for path in files] == before
    assert sorted(folder.iterdir()) == files


def test_a_misspelt_id_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="truncated_twice"):
        write_certificates(tmp_path / "new", names=["truncated_once", "truncated_twice"])
    assert not (tmp_path / "new").exists()


def test_a_rule_that_does_not_run_on_terms_is_refused() -> None:
    faults = {
        "arithmetic.counts:tokens_loaded_by_decode": lambda prompt, off: (
            prompt - off if prompt > off else prompt
        )
    }
    with pytest.raises(UsageError, match="does not run on Z3 terms"):
        under(faults, asked, "delivered_is_counted")


def test_the_same_texts_in_another_process(tmp_path: Path) -> None:
    names = ["trim_equal_tokens", "window.null_is_not_needed"]
    code = (
        "import pathlib, sys\n"
        "from kvproof.proofs.certificate import write_certificates\n"
        "write_certificates(pathlib.Path(sys.argv[1]), names=sys.argv[2:])\n"
    )
    folder = tmp_path / "other"
    subprocess.run([sys.executable, "-c", code, str(folder), *reversed(names)], check=True)
    write_certificates(tmp_path / "this", names=names)
    texts = [
        {path.name: path.read_text() for path in (tmp_path / which).iterdir()}
        for which in ("this", "other")
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 10
