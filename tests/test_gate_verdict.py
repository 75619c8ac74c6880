"""The verdict of the gate on two sides made by hand: what is reported, and when head cannot be
judged."""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.protocol import KitConnector, Recorded, Seen
from kvproof.gate.difference.record import Need, Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Episodes, Follow, Play, Plays, Workload, follow
from kvproof.gate.formats import terminal
from kvproof.gate.search import judge, outcome, scouts, search, ticking, workloads
from kvproof.gate.search.needs import Needs
from kvproof.gate.search.side import Ended
from kvproof.gate.side.unmade import EngineUnmade, shown
from kvproof.gate.source.changes import ChangedFunction, Changes
from kvproof.gate.source.outcomes import Condition, Operand
from kvproof.gate.source.parts import ENCODER, LOOP, OFFLOADING
from kvproof.invariants.registry import CHECKS
from kvproof.live import reproducer
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.trees import Tree
from kvproof.model import interruption
from kvproof.model.because import choice, release
from kvproof.model.severity import Severity
from kvproof.reports.gate_output import Gate, GateLost
from tests.fake_sides import (
    CRASH,
    LEAK,
    OTHER,
    RUN,
    SOME,
    FakeSide,
    compared,
    is_like,
    is_tried,
    nothing,
    shows,
)
from tests.two_machines import FULL, broken, result, taken, unkept

POOL, WHY = "the scheduler and the block pool", "lies in v1/core/*"
CHANGED = ChangedFunction(
    *("v1/core/block_pool.py", "BlockPool.free", 10, "changed"), POOL, WHY, True
)
TREES = (Tree("base", Path("b"), (Path("b"),), "1"), Tree("head", Path("h"), (Path("h"),), "2"))


def reproduced(trace: Path, _trees: Any, folder: Path, stem: str) -> Path:
    """It takes the place of writing a reproducer, and of running it."""
    assert trace == Path("t.jsonl")
    return folder / f"test_{stem}.py"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Gate]:
    """The output of the gate for two sides. The time is up when some presets were driven."""
    monkeypatch.setattr(outcome, "fingerprint", lambda tree: tree.name)
    monkeypatch.setattr(judge, "read", lambda path: path)
    monkeypatch.setattr(reproducer, "write", reproduced)
    monkeypatch.setattr(workloads, "of_findings", lambda: [RUN])
    monkeypatch.setattr(workloads, "of_faults", lambda: [OTHER])
    presets = workloads.of_presets(0)[:3]
    monkeypatch.setattr(workloads, "of_presets", lambda *_: presets)
    clock = SimpleNamespace(now=0.0, plans=search.PLANS_FIRST)
    clock.monotonic = lambda: clock.now

    def no_more(_seed: int, _first: int = 0) -> Iterator[Workload]:
        clock.now = math.inf
        yield from ()

    def few(
        names: Any, seed: int, part: int, about: Any = (), *, look: bool = False
    ) -> list[Plays]:
        if part > clock.plans and not look:
            clock.now = math.inf
        return of_connectors(names, seed, part, about, look=look)

    of_connectors = workloads.of_connectors
    monkeypatch.setattr(workloads, "of_connectors", few)
    monkeypatch.setattr(workloads, "of_random_clusters", no_more)
    monkeypatch.setattr(scouts, "SCOUTS", 0)
    monkeypatch.setattr(search, "time", clock)

    def call(
        base: Any,
        head: Any,
        *,
        budget: float = 9,
        fail_on: str = "crash",
        traces: Any = (),
        changed: ChangedFunction = CHANGED,
        plans: int = search.PLANS_FIRST,
        strict: bool = False,
        fail_on_costs: bool = False,
    ) -> Gate:
        clock.plans = plans
        if traces:
            monkeypatch.setattr(workloads, "of_findings", lambda: traces)
        grave = next(each for each in Severity if each.option == fail_on)
        args = argparse.Namespace(
            seed=0,
            budget=budget,
            fail_on=grave,
            traces=tmp_path,
            strict=strict,
            fail_on_costs=fail_on_costs,
        )
        changes = Changes((changed,), ())
        with interruption.handled(), compared(base, head) as both:
            clock.now = time.monotonic()
            found = judge._Judge(args, both, changes, ticking.Ticking(budget, clock.now)).run()
            return outcome.output(args, TREES, changes, found, 1.5)

    return call


def test_a_difference_is_reported_with_its_trace_and_its_place(judged: Any) -> None:
    head = FakeSide(shows(CRASH, reached=(SOME,)))
    gate = judged(nothing, head)
    assert (gate.verdict, gate.exit_code) == ("VIOLATED", 1)
    [finding] = gate.findings
    assert (finding.kind, finding.invariant, finding.fails) == (
        *("introduced", "engine_survives"),
        True,
    )
    assert (finding.severity, finding.known) == ("crash", None)
    assert (finding.trace, finding.events) == ("t.jsonl", ("one", "two"))
    assert [(p.file, p.line, p.function) for p in finding.places] == [
        ("vllm/v1/core/block_pool.py", 10, "BlockPool.free")
    ]
    assert [(r.stem, r.found.key) for r in head.records] == [("engine_survives", CRASH.key)]
    assert finding.reproducer == "test_t.py"
    assert gate.reached == (SOME,)


def test_a_difference_is_told_on_standard_error_before_it_is_shrunk(
    judged: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def head(workload: Workload) -> Result:
        told.append(capsys.readouterr().err)
        return result(workload.name, CRASH, reached=(SOME,))

    judged(nothing, head)
    first = next(number for number, text in enumerate(told) if text)
    assert told[first].startswith("Introduced: engine_survives: ")
    assert first < len(told) - 1  # and then it was shrunk


def test_what_is_below_fail_on_is_told_and_fails_nothing(judged: Any) -> None:
    gate = judged(nothing, shows(LEAK, reached=(SOME,)))
    assert (gate.verdict, gate.exit_code) == ("VIOLATED", 0)
    assert [finding.fails for finding in gate.findings] == [False]
    gate = judged(nothing, shows(LEAK, reached=(SOME,)), fail_on="leak")
    assert gate.exit_code == 1


def test_what_too_few_runs_show_is_not_green(judged: Any) -> None:
    """But for what is less grave than `--fail-on`."""

    def of(found: Break) -> Any:
        def head(workload: Workload) -> Result:
            return (nothing if is_tried(workload) else shows(found, reached=(SOME,)))(workload)

        return judged(nothing, head)

    lesser = of(broken("predicted_is_taken"))
    assert (lesser.verdict, lesser.exit_code) == ("SAMPLED", 0)
    assert any("too few to say" in line for line in lesser.not_run)
    gate = of(CRASH)
    assert (gate.verdict, gate.exit_code, gate.findings) == ("UNKNOWN", 3, ())
    assert gate.reason.startswith("head alone broke engine_survives")
    assert "in 0 of 128 runs like the one that shows it, and base in none" in gate.reason
    assert gate.reason in gate.not_run


def test_what_head_alone_breaks_after_earlier_runs_has_no_trace(judged: Any) -> None:
    def head(workload: Workload) -> Result:
        whole = isinstance(workload, Episodes)
        return (shows(CRASH, reached=(SOME,)) if whole else nothing)(workload)

    gate = judged(nothing, head)
    assert (gate.verdict, gate.exit_code) == ("VIOLATED", 1)
    [found] = gate.findings
    assert (found.kind, found.trace) == ("introduced", None)
    assert any("only after earlier runs of its process" in line for line in gate.not_run)


def test_a_tolerated_finding_does_not_hide_what_is_unknown(judged: Any) -> None:
    head = FakeSide(shows(LEAK, reached=(SOME,)), Seen("", (MISSING,)))
    gate = judged(nothing, head)
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)
    assert [each.kind for each in gate.findings] == ["introduced"]


def test_what_cannot_be_written_takes_nothing_from_the_verdict_and_it_is_said_why(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "The file t cannot be written (No space left on device). Use another."
    side = FakeSide(shows(CRASH, reached=(SOME,)), recorded=Recorded(error=error))
    gate = judged(nothing, side)
    assert (gate.exit_code, gate.findings[0].trace) == (1, None)
    assert gate.findings[0].events  # those of the search
    assert any(error in line for line in gate.not_run)
    monkeypatch.setattr(reproducer, "write", lambda *_: "it passes on head")
    gate = judged(nothing, shows(CRASH, reached=(SOME,)))
    assert (gate.exit_code, gate.findings[0].reproducer) == (1, None)
    assert "a reproducer of t.jsonl: it passes on head" in gate.not_run


def test_nothing_that_differs_is_sampled(judged: Any) -> None:
    gate = judged(nothing, nothing)
    assert (gate.verdict, gate.exit_code, gate.findings) == ("SAMPLED", 0, ())
    assert (gate.ran.traces, gate.ran.sampled) == (2, 3)


def test_quantities_that_differ_both_ways_are_in_the_output_alone(judged: Any) -> None:
    def head(workload: Workload) -> Result:
        sign = 1 if isinstance(workload, Follow) else -1
        return replace(nothing(workload), records=(taken(sign, steps=3 + sign),))

    gate = judged(shows(records=(taken(steps=3),), reached=(SOME,)), head)
    [differs] = gate.differs
    assert (differs.what, differs.worse) == ("steps", 2)
    assert differs.better == differs.runs - 2 > 0
    assert (gate.verdict, gate.exit_code, gate.costs) == ("SAMPLED", 0, ())


def test_equal_runs_that_execute_the_whole_change_show_no_effect(judged: Any) -> None:
    equal = shows(records=(taken(),), reached=(SOME,))
    gate = judged(equal, equal)
    assert (gate.verdict, gate.exit_code) == ("NO EFFECT", 0)
    assert (gate.ran.compared, gate.ran.differing) == (5, 0)
    assert judged(equal, equal, strict=True).exit_code == 3


MISSING = GateLost(feature="push", entry="NixlScheduler.x", why="")


def looking(failure: str = "", *missing: GateLost) -> FakeSide:
    return FakeSide(nothing, Seen(failure, missing))


def cannot(workload: Workload) -> Result:
    return Result(workload.name, reason="This vLLM has no y")


def cannot_some(cannot: Callable[[Workload], bool]) -> Any:
    """A side that cannot take some workloads, as where they do not end."""
    late = "it takes more than 60 s"
    return lambda one: Result(one.name, reason=late) if cannot(one) else nothing(one)


def unmade(workload: Workload) -> Result:
    """Also where making an engine reaches the change."""
    try:
        raise AttributeError("'list' object has no attribute 'items'")
    except AttributeError as error:
        return replace(shown(workload.name, EngineUnmade(FULL, error)), reached=(SOME,))


def ends(_workload: Workload) -> Result:
    raise Ended("Killed")


ENCODED = ChangedFunction(
    *("v1/core/encoder_cache_manager.py", "Manager.free", 10, "changed"),
    *(ENCODER, WHY, True),
)


STORE = ChangedFunction(*("v1/kv_offload/base.py", "Manager.free", 10, "changed"), OFFLOADING, WHY)


def of_store(workload: Workload) -> Result:
    """Plans for a connector reach the changed function, and nothing else does."""
    reached = (STORE.key,) if isinstance(workload, Plays | Play) else ()
    return result(workload.name, reached=reached)


def drifted(workload: Workload) -> Result:
    if isinstance(workload, Plays):
        return Result(workload.name, reason="This vLLM has no X.register_kv_caches")
    return result(workload.name)


KIT = Seen("", (), (KitConnector("offloading"),))
KIT_DRIVES = FakeSide(of_store, KIT)
CRASHES = shows(CRASH, reached=(SOME,))
NOT_ASKED = "base could not be asked about what breaks on head"
TOO_FEW_PLANS = "before 5 of 5 plans for connectors were driven"


@pytest.mark.parametrize(
    ("base", "head", "says", "more"),
    [
        (nothing, looking("SyntaxError: no"), "head cannot be driven: SyntaxError: no", {}),
        (looking("no base"), nothing, "base cannot be driven: no base", {}),
        (looking("no base"), looking("no head"), "head cannot be driven: no head", {}),
        (nothing, cannot, "no workload can be driven on head: This vLLM has no y", {}),
        (unmade, unmade, "no engine can be made on base and on head: the engines of full st", {}),
        (shows(), shows(), f"no run of kvproof drives yet: {POOL} (1 function)", {}),
        (nothing, ends, "a process that drives vLLM has ended (Killed)", {}),
        (ends, nothing, "a process that drives vLLM has ended (Killed)", {}),
        (nothing, looking("", MISSING), "head has no NixlScheduler.x (for push)", {}),
        (
            nothing,
            cannot_some(lambda one: one.name == OTHER.name),
            "on base and not on head: it takes more than 60 s",
            {},
        ),
        (cannot_some(is_like), CRASHES, NOT_ASKED, {}),
        (
            shows(),  # most runs call the encoder cache, and give it nothing to do
            shows(reached=(ENCODED.key,)),
            "no run of kvproof drives yet: the encoder cache (1 function)",
            {"changed": ENCODED},
        ),
        (
            KIT_DRIVES,
            FakeSide(drifted, KIT),
            "offloading cannot be driven on head: This vLLM has no X.register",
            {"changed": STORE},
        ),
        (KIT_DRIVES, KIT_DRIVES, TOO_FEW_PLANS, {"changed": STORE, "plans": 1}),
        (
            KIT_DRIVES,
            KIT_DRIVES,
            "KV offloading (1 function)",
            {"changed": STORE._replace(name="Manager.evict")},
        ),
    ],
)
def test_where_head_is_not_judged_the_verdict_is_unknown(
    judged: Any, base: Any, head: Any, says: str, more: dict[str, Any]
) -> None:
    gate = judged(base, head, **more)
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)
    assert says in gate.reason
    if says == NOT_ASKED:
        assert any("base could not be asked: engine_survives" in line for line in gate.not_run)


def test_a_run_that_neither_side_can_take_is_green(judged: Any) -> None:
    side = cannot_some(lambda one: one.name == OTHER.name)
    assert judged(side, side).verdict == "SAMPLED"


def test_a_budget_that_is_used_up_at_once_is_unknown(judged: Any) -> None:
    gate = judged(nothing, nothing, budget=0)
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)
    assert "is used up before anything is driven: to start both vLLMs takes about" in gate.reason
    assert "use --budget" in gate.reason
    assert judge.too_short(30, 30).endswith("use --budget 70 or more")
    assert judge.SEARCHED * judge.enough(270.0, 115.0) >= 270.0 + 115.0
    assert [(each.function, each.runs) for each in gate.functions] == [(SOME, 0)]


def test_what_was_introduced_counts_though_a_side_ends(judged: Any) -> None:
    def head(workload: Workload) -> Result:
        if workload.name == "fault y":
            return nothing(workload)
        if workload.name.startswith("episodes"):
            raise Ended("Killed")
        return result(workload.name, LEAK, reached=(SOME,))

    gate = judged(nothing, head, fail_on="leak")
    assert (gate.verdict, gate.exit_code) == ("VIOLATED", 1)
    gate = judged(nothing, head, fail_on="crash")
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)


def test_what_base_cannot_do_either_is_not_lost(judged: Any) -> None:
    gate = judged(looking("", MISSING), looking("", MISSING))
    assert (gate.verdict, gate.lost) == ("SAMPLED", ())
    assert [each.entry for each in gate.head.not_driven] == [MISSING.entry]


def test_an_interruption_keeps_what_was_found(judged: Any) -> None:
    def interrupted(workload: Workload) -> Result:
        if workload.name.startswith("episodes"):
            raise KeyboardInterrupt
        return result(workload.name, LEAK, reached=(SOME,))

    gate = judged(nothing, interrupted)
    assert (gate.verdict, [each.kind for each in gate.findings]) == ("UNKNOWN", ["introduced"])
    assert judged(nothing, interrupted, fail_on="leak").verdict == "VIOLATED"

    def at_once(_workload: Workload) -> Result:
        raise KeyboardInterrupt

    gate = judged(nothing, at_once)
    assert (gate.verdict, gate.exit_code, gate.reason) == ("UNKNOWN", 3, "interrupted")


def test_only_the_most_severe_findings_are_written(judged: Any) -> None:
    """Each is shown by its own run alone, so that none is told with another."""
    leaks = [
        broken(each.id, length=4) for each in CHECKS.values() if each.severity == Severity.LEAK
    ][:4]
    grave = [broken("writer_is_alone", length=5), broken("engine_survives", length=6)]
    many = {f"finding {n}": each for n, each in enumerate((*leaks, *grave))}

    def one_each(workload: Workload) -> Result:
        if is_like(workload):
            return result(workload.name, *many.values(), reached=(SOME,))
        found = many.get(workload.name.split(",")[0])
        return result(workload.name, *[found] if found else [], reached=(SOME,))

    side = FakeSide(one_each)
    gate = judged(nothing, side, traces=[follow(FULL, name, b.events) for name, b in many.items()])
    assert len(gate.findings) == len(many)
    assert [r.stem for r in side.records] == [
        *("writer_is_alone", "engine_survives"),
        *[each.signature.check for each in leaks][: judge.WRITTEN_MAX - 2],
    ]
    assert [each.trace for each in gate.findings].count(None) == len(many) - judge.WRITTEN_MAX


def test_that_a_call_of_the_encoder_cache_dies_is_seen(judged: Any) -> None:
    """Most runs call it, and only in plans with images it has something to do."""
    gate = judged(nothing, FakeSide(shows(CRASH, reached=(ENCODED.key,))), changed=ENCODED)
    assert (gate.verdict, gate.exit_code) == ("VIOLATED", 1)


def test_a_function_that_is_called_without_its_change_is_unknown(judged: Any) -> None:
    rare = CHANGED._replace(statements=("v1/core/block_pool.py:@41",))
    called = shows(reached=(rare.key,), watched=True)
    gate = judged(called, called, changed=rare)
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)
    assert gate.reason == f"runs call {rare.key} and execute no changed statement"
    [function] = gate.functions
    assert (function.runs, function.statements, function.not_executed) == (0, 1, (41,))
    executed = shows(reached=(rare.key, *rare.statements), watched=True)
    assert judged(called, executed, changed=rare).verdict == "SAMPLED"


def test_a_run_that_reaches_nothing_is_watched_all_the_same(judged: Any) -> None:
    gate = judged(shows(watched=True), shows(watched=True))
    assert gate.verdict == "UNKNOWN"
    assert gate.functions[0].runs == 0
    assert gate.watched > 0


def test_a_loop_that_nothing_reaches_is_unknown_after_one_look(judged: Any) -> None:
    loop = ChangedFunction("v1/engine/core.py", "EngineCore.f", 9, "changed", LOOP, WHY, True)
    head = FakeSide(shows())
    gate = judged(shows(), head, changed=loop)
    assert (gate.verdict, gate.exit_code) == ("UNKNOWN", 3)
    assert gate.reason.endswith("drives yet: the loop of the engine (1 function)")
    assert head.driven == ["engines"]


def test_a_rule_that_a_connector_breaks_on_head_is_reported_with_its_plan(judged: Any) -> None:
    found = unkept("promised_tokens_are_loaded", connector="offloading")

    def head(workload: Workload) -> Result:
        drawn = isinstance(workload, Play | Plays)
        return replace(of_store(workload), breaks=(found,) if drawn else ())

    side = FakeSide(head, KIT, Recorded("p.jsonl", ("an engine", "a step")))
    gate = judged(KIT_DRIVES, side, changed=STORE)
    [one] = gate.findings
    assert (gate.verdict, gate.exit_code, one.kind) == ("VIOLATED", 1, "introduced")
    assert (one.invariant, one.severity) == ("promised_tokens_are_loaded", "wrong tokens")
    assert (one.says, one.connector) == (CONTRACT[one.invariant].name, "offloading")
    assert one.reproducer is None
    text = " ".join(terminal.text(gate).split())
    assert "kvproof replay p.jsonl" in text
    assert "an engine and what happens to it, with the connector offloading" in text


def test_a_changed_connector_that_was_reached_is_green(judged: Any) -> None:
    assert judged(KIT_DRIVES, KIT_DRIVES, changed=STORE).verdict == "SAMPLED"


FIRST, SECOND, OPERAND = (f"v1/core/block_pool.py:@{at}" for at in ("10", "-12", "10?0"))
BOTH = (f"{OPERAND}=True", f"{OPERAND}=False")


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        ((FIRST, SECOND, BOTH[1]), "line 10: `full` was always False"),
        ((FIRST, *BOTH), "line 12 of base"),
        ((FIRST, SECOND, *BOTH), ""),
    ],
)
def test_what_no_run_executes_of_a_change_is_unknown_and_named(
    judged: Any, seen: tuple[str, ...], left: str
) -> None:
    operand = Operand(OPERAND, 10, "full", (True, False))
    conditions = (Condition((operand,), frozenset()),)
    partly = CHANGED._replace(statements=(FIRST, SECOND), conditions=conditions)
    gate = judged(*[shows(reached=(SOME, *seen))] * 2, changed=partly)
    assert (gate.verdict, gate.exit_code) == (("UNKNOWN", 3) if left else ("SAMPLED", 0))
    told = f"no run executes all that head changes: {SOME} ({left})" if left else UNSET
    assert gate.reason == told


def test_a_statement_that_only_raises_is_not_waited_for(judged: Any) -> None:
    raises = CHANGED._replace(statements=(FIRST, SECOND), raises=frozenset({SECOND}))
    gate = judged(*[shows(reached=(SOME, FIRST))] * 2, changed=raises)
    assert gate.verdict == "SAMPLED"


def test_runs_that_nobody_took_to_the_end_show_no_effect_of_nothing(judged: Any) -> None:
    cut = shows(records=(Record((1,)),), reached=(SOME,))
    assert judged(cut, cut).verdict == "SAMPLED"


@pytest.mark.parametrize(("kind", "verdict"), [(release, "UNKNOWN"), (choice, "SAMPLED")])
def test_what_head_does_more_often_and_nobody_weighed_is_not_green(
    judged: Any, kind: Any, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = Need("room_is_used", (kind("it is so"),))
    monkeypatch.setattr(Needs, "weigh", lambda self, *_: setattr(self, "unweighed", [need]) or ())
    gate = judged(nothing, nothing)
    assert gate.verdict == verdict
    told = "seen more often on head, and not weighed: room_is_used, excused: it is so"
    assert told in gate.not_run


def test_what_is_told_is_not_named_as_chance_too(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been weighed, and told by other runs later."""
    both = [CRASH.need, LEAK.need]
    monkeypatch.setattr(Needs, "confirm", lambda self: self.not_more.extend(both) or iter(()))
    gate = judged(nothing, shows(CRASH))
    assert [each.invariant for each in gate.findings] == [CRASH.signature.check]
    perhaps = [line for line in gate.not_run if line.startswith("seen more often on head")]
    assert [LEAK.signature.check in line for line in perhaps] == [True]


def test_what_is_not_red_says_how_many_real_defects_the_gate_finds(
    judged: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of the changed part; of all parts, where that has few."""
    file = tmp_path / "found.json"
    monkeypatch.setattr(outcome, "FILE", file)

    def told(number: int) -> tuple[str, int, int]:
        parts = {CHANGED.part: [2, number], "KV connectors": [3, 5]}
        file.write_text(json.dumps({"date": "2026-11-29", "parts": parts}), encoding="utf-8")
        one = judged(nothing, nothing).found
        return one.part, one.found, one.of

    assert told(6) == (CHANGED.part, 2, 6)
    assert told(4) == ("all parts", 5, 9)
    assert judged(nothing, shows(CRASH)).found is UNSET


def test_the_line_moves_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(ticking, "EVERY_S", 0.001)
    monkeypatch.setattr(ticking.live_line, "show", shown.append)
    with ticking.Ticking(300, time.monotonic()) as line:
        line.show("importing both vLLMs ...")
        while len(shown) < 3:
            time.sleep(0.001)
    assert all("of 300 s: importing both vLLMs ..." in each for each in shown)
