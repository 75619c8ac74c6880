"""Spacer finds invariants from one claim, and a run where a rule or a step is wrong."""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import z3

from kvproof.cli.main import main
from kvproof.model.counting_abstraction.registry import MAKERS, systems
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.strategies.symbolic import spacer
from kvproof.strategies.symbolic.posed import Posed
from kvproof.strategies.symbolic.readable import read, reduced
from kvproof.strategies.symbolic.spacer import discover
from kvproof.strategies.symbolic.walks import visited
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.proof

TRANSFER = {"kernel": 1, "p_ratio": 2, "d_ratio": 1, "window": 2}
TABLE = {"block_size": 2, "units": 1, "window": 3}
POOL = {
    "pool_adds_up": ("free >= 0", "held >= 0", "total == free + held + 1"),
    "held_is_referenced": ("held >= 0", "held <= references", "held >= 1 or references <= 0"),
}


@pytest.mark.parametrize("claim", POOL)
def test_the_invariant_of_a_pool_of_any_size(claim: str) -> None:
    """`held_is_referenced` is found from itself alone, and says the same."""
    found = discover("pool", claim, {}, REFERENCE)
    assert (found.verdict, found.invariant) == (Verdict.PROVED, POOL[claim])
    assert found.walked > 100


@pytest.mark.parametrize(
    ("system", "claim", "fixed"),
    [
        ("transfer of mamba", "lists_are_equally_long", TRANSFER),
        ("transfer of full", "blocks_outlive_their_readers", TRANSFER),
        ("transfer of window", "lists_start_together", TRANSFER),
        ("full", "full_attention_keeps_all", TABLE),
        ("mamba", "state_is_there", TABLE),
    ],
)
def test_more_is_found_than_was_given(system: str, claim: str, fixed: dict[str, int]) -> None:
    found = discover(system, claim, fixed, REFERENCE, timeout_s=60.0)
    assert (found.verdict, found.reason) == (Verdict.PROVED, "")
    assert found.invariant
    assert found.walked > 100
    assert not found.run


def test_the_state_is_there_because_tables_reach_their_tokens() -> None:
    found = discover("mamba", "state_is_there", TABLE, REFERENCE, timeout_s=60.0)
    assert any("length" in line and "computed" in line for line in found.invariant)


@pytest.mark.parametrize(
    ("fault", "system", "claim", "fixed"),
    [
        ("double_free", "pool", "held_is_referenced", {}),
        ("front_trim", "transfer of full", "lists_start_together", TRANSFER),
        ("truncation_without_guard", "mamba", "truncated_once", TABLE),
    ],
)
def test_a_fault_gives_a_run(fault: str, system: str, claim: str, fixed: dict[str, int]) -> None:
    found = discover(system, claim, fixed, rules_with([FAULTS[fault]]), timeout_s=60.0)
    assert (found.verdict, found.invariant) == (Verdict.VIOLATED, ())
    assert len(found.run) > 1


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    make = MAKERS["pool"]

    def wrong(rules: Any) -> Any:
        system = make(rules)
        (move,) = system.actions
        then = dataclasses.replace(move, then=lambda *args: change(move.then(*args)))
        return dataclasses.replace(system, actions=(then,))

    monkeypatch.setitem(MAKERS, "pool", wrong)


@pytest.mark.parametrize("claim", POOL)
def test_a_wrong_action_has_no_invariant(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda p: p._replace(free=p.free + 1, references=p.references + 1))
    systems.cache_clear()
    try:
        found = discover("pool", claim, {}, REFERENCE)
    finally:
        monkeypatch.undo()
        systems.cache_clear()
    assert (found.verdict, found.invariant) == (Verdict.VIOLATED, ())
    assert found.run[0].startswith("total 1") or found.run[0].startswith("total 2")


@pytest.mark.parametrize(
    ("told", "where"),
    [
        (lambda p: p["held"] >= 1, "at the start"),
        (lambda p: p["held"] == 0, "after move"),
        (lambda p: p["free"] >= 0, "to imply the claim"),
    ],
)
def test_what_is_not_inductive_is_not_believed(
    told: Callable[[dict[str, Any]], Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        spacer,
        "_invariant",
        lambda posed, _: told({str(v): v for v in posed.variables}),
    )
    found = discover("pool", "held_is_referenced", {}, REFERENCE)
    assert (found.verdict, found.invariant) == (Verdict.UNKNOWN, ())
    assert found.reason == f"the invariant that Spacer found fails {where}"


def test_what_a_walk_breaks_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    system = systems(REFERENCE)["pool"]
    sizes = system.parameters(3)
    broken = system.initial(sizes)._replace(held=1)
    monkeypatch.setattr(spacer, "visited", lambda *_, **_options: iter([(sizes, broken)]))
    found = discover("pool", "pool_adds_up", {}, REFERENCE)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason.startswith("a walk breaks the invariant that Spacer found")


def test_a_run_that_is_none_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = rules_with([FAULTS["double_free"]])
    monkeypatch.setattr(Posed, "leads", lambda *_: False)
    found = discover("pool", "held_is_referenced", {}, rules)
    assert (found.verdict, found.run) == (Verdict.UNKNOWN, ())
    assert "its answer is not a run" in found.reason


def test_steps_that_are_none_do_not_lead() -> None:
    posed = Posed(systems(REFERENCE)["pool"], "pool_adds_up", {})
    start = {"total": 3, "free": 2, "held": 0, "references": 0}
    taken = {"total": 3, "free": 1, "held": 1, "references": 1}
    assert posed.starts(start)
    assert not posed.starts(taken)
    assert posed.leads(start, taken)
    assert not posed.leads(start, {**taken, "total": 4})
    assert not posed.leads(start, {**taken, "references": 0})


def test_open_sizes_that_divide_and_a_time_limit_are_unknown() -> None:
    found = discover("mamba", "truncated_once", {}, REFERENCE)
    assert (found.verdict, found.invariant) == (Verdict.UNKNOWN, ())
    assert "fix more sizes" in found.reason
    found = discover("mamba", "null_is_not_needed", TABLE, REFERENCE, timeout_s=0.01)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason.startswith("Spacer gave up")


@pytest.mark.parametrize(
    ("system", "claim", "fixed", "said"),
    [
        ("pol", "pool_adds_up", {}, "Use pool instead"),
        ("pool", "pool_adds_in", {}, "Use pool_adds_up instead"),
        ("pool", "pool_adds_up", {"totals": 1}, "Use total instead"),
        ("pool", "pool_adds_up", {"total": 0}, "does not allow these sizes"),
        ("mamba", "truncated_once", {"sends": 1, "connected": 0}, "does not allow these sizes"),
    ],
)
def test_what_there_is_not_is_refused(
    system: str, claim: str, fixed: dict[str, int], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        discover(system, claim, fixed, REFERENCE)


def test_walks_keep_to_fixed_sizes() -> None:
    seen = list(visited("mamba", REFERENCE, fixed=TABLE))
    assert {(s.block_size, s.units, s.window) for s, _ in seen} == {(2, 1, 3)}
    assert len({s.chunk for s, _ in seen}) > 1
    assert list(visited("pool", REFERENCE)) == list(visited("pool", REFERENCE, fixed={}))


def ints(*names: str) -> list[Any]:
    context = z3.Context()
    return [z3.Int(name, context) for name in names]


def test_formulas_are_read() -> None:
    a, b, c = ints("a", "b", "c")
    for formula, text in (
        (a - c - b >= 1, "a >= b + c + 1"),
        (z3.Not(2 * a <= 4 * b), "2 * a >= 4 * b + 1"),
        (2 * a <= 4 * b + 6, "a <= 2 * b + 3"),
        (-a <= -3, "a >= 3"),
        (a < 0, "a <= -1"),
        (z3.Not(a == b), "a != b"),
        (z3.Or(z3.Not(a == 2), b >= 1), "a == 2 implies b >= 1"),
        (z3.Or(z3.Not(a == 2), z3.Not(b == 1)), "a == 2 implies b != 1"),
        (z3.Or(a <= 0, z3.And(b >= 1, c >= 1)), "a <= 0 or (b >= 1 and c >= 1)"),
        (z3.Not(z3.And(a == 1, b >= 2)), "a == 1 implies b <= 1"),
        (a <= (b + 1) / 2, "a <= ((b + 1) div 2)"),
        (a == z3.If(b >= c, b, c), "a == (if b >= c then b else c)"),
        ((a == 0) == (b == 0), "a == 0 where and only where b == 0"),
    ):
        assert read(formula) == text


def test_what_is_read_is_what_the_formula_says() -> None:
    a, b = ints("a", "b")
    formulas = (3 - a > 2 * b, -a - b <= 3, z3.Not(a - 2 * b == -1), (a - 1) / 3 >= b - 2, -b < 2)
    for formula in formulas:
        text = read(formula).replace("div", "//")
        for x, y in itertools.product(range(-4, 9), repeat=2):
            plain = z3.substitute(formula, (a, z3.IntVal(x, a.ctx)), (b, z3.IntVal(y, a.ctx)))
            assert eval(text, {"a": x, "b": y}) == z3.is_true(z3.simplify(plain)), text


def test_what_follows_is_left_out_and_bounds_that_meet_are_joined() -> None:
    a, b = ints("a", "b")

    def valid(truth: Any) -> bool:
        solver = z3.Solver(ctx=a.ctx)
        return str(solver.check(z3.Not(truth))) == "unsat"

    formula = z3.And(a >= b, z3.Not(a - b >= 1), z3.Or(a >= 5, b <= 7), b <= 6)
    assert [read(part) for part in reduced(formula, a >= 0, valid)] == ["a == b", "b <= 6"]


def test_the_same_invariant_in_another_process() -> None:
    code = (
        "from kvproof.strategies.symbolic.spacer import discover\n"
        "from kvproof.model.reference.default_rules import REFERENCE\n"
        "found = discover('transfer of mamba', 'delivered_is_loaded',"
        f" {TRANSFER}, REFERENCE, timeout_s=60.0)\n"
        "print(*found.invariant, sep='\\n')\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = discover(
        "transfer of mamba", "delivered_is_loaded", TRANSFER, REFERENCE, timeout_s=60.0
    )
    assert tuple(said.stdout.splitlines()) == found.invariant != ()


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(("prove", *argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_prove_discovers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--discover", "pool.held_is_referenced")
    assert code == 0
    assert tuple(out.splitlines()[:-1]) == POOL["held_is_referenced"]
    assert out.splitlines()[-1].startswith("PROVED - 3 parts; inductive")
    some = ("--discover", "transfer_of_mamba.all_is_offered")
    sizes = [word for name, n in TRANSFER.items() for word in ("--size", f"{name}={n}")]
    code, out, _ = call(capsys, *some, *sizes, "--json")
    record = json.loads(out)
    assert (code, record["verdict"], record["discovered"]["sizes"]) == (0, "PROVED", TRANSFER)
    code, out, _ = call(capsys, *some)
    assert code == 3
    assert out.startswith("UNKNOWN - Spacer cannot divide")


def test_prove_discovers_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    some = ("--discover", "pool.held_is_referenced", "--fault", "double_free")
    code, out, _ = call(capsys, *some)
    assert code == 1
    assert out.splitlines()[-1].startswith("VIOLATED - a run of 2 states violates the claim")
    code, out, _ = call(capsys, *some, "--json")
    record = json.loads(out)
    assert (code, record["invariant"]) == (1, "pool.held_is_referenced")
    assert len(record["discovered"]["run"]) == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--discover", "pool.pool_adds_in"), "Use pool.pool_adds_up instead"),
        (("--discover", "pool.pool_adds_up", "--size", "total"), "Use for example"),
        (("--discover", "pool.pool_adds_up", "--size", "total=-1"), "Use for example"),
        (("--size", "total=1"), "Use --discover CLAIM together"),
        (("--discover", "pool.pool_adds_up", "--cross"), "Use it without --cross"),
    ],
)
def test_bad_input_of_discover(
    argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, *argv)
    assert (code, out) == (2, "")
    assert said in err
