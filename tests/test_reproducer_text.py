"""Generated reproducers: their text. They are run on trees in `test_gate_live.py`."""

import ast
import dataclasses
import keyword
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.live.reproducer import choosing, running
from kvproof.live.reproducer.choosing import Expectation, Observation
from kvproof.live.reproducer.drafting import Draft, drafted, observing
from kvproof.live.reproducer.facts import NEAREST, NO_BASE, Fact
from kvproof.live.reproducer.layout import assigned, call, literal
from kvproof.live.reproducer.library import fitted, library
from kvproof.live.reproducer.wording import generated
from kvproof.model.because import About
from kvproof.model.finding import Finding
from kvproof.model.subjects import Subject
from tests.findings import FINDINGS, trace_of
from tests.reasons import said

Golden = Callable[[str, str], None]


def draft(name: str) -> Draft:
    made = drafted(trace_of(name))
    assert isinstance(made, Draft), made
    return made


WRITTEN = [name for name in FINDINGS if not trace_of(name).cluster.pushes]


def claim_of(made: Draft, kind: Subject) -> Expectation:
    """A claim after the last statement about the last fact of this kind."""
    fact = [fact for fact in made.facts if fact.kind == kind][-1]
    steps = [i for i, p in enumerate(made.pieces) if p.step and p.engine == fact.engine]
    return Expectation(steps[-1] if fact.of_step else len(made.pieces) - 1, fact, [[1, 2]], [])


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """A file for each finding, and one for each kind of fact."""
    made = {}
    kinds = set(Subject) - {Subject.RAISES}
    for name in WRITTEN:
        one = draft(name)
        made[name] = generated(one, Expectation(len(one.pieces) - 1, None, None, "died"), name)
        for kind in sorted(kinds & {fact.kind for fact in one.facts}, key=NEAREST.__getitem__):
            made[f"{name}_{kind.name}"] = generated(one, claim_of(one, kind), name)
            kinds.remove(kind)
    assert not kinds
    return made


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("late_end_loses_session", Subject.QUEUES, 1),
        ("held_is_loaded_again", Subject.PRESENT, False),
    ],
)
def test_a_reproducer_reads_like_this(
    golden: Golden, name: str, kind: Subject, expected: object
) -> None:
    made = draft(name)
    claim = claim_of(made, kind)._replace(expected=expected)
    golden(f"reproducer_{name}.txt", generated(made, claim, name))


def test_every_text_is_python_that_needs_vllm_torch_and_pytest_alone(
    texts: dict[str, str],
) -> None:
    assert len(texts) > 50
    for name, text in texts.items():
        assert "kvproof" not in text, name
        assert "#@" not in text, name
        imported = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
        assert imported - sys.stdlib_module_names <= {"vllm", "torch", "pytest"}, name


def test_every_text_passes_ruff_with_its_defaults(texts: dict[str, str], tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    for check in (["check", "--isolated"], ["format", "--isolated", "--diff"]):
        ran = subprocess.run([ruff, *check, str(tmp_path)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-500:]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_statements_can_be_observed(name: str) -> None:
    text = observing(draft(name))
    compile(text, name, "exec")
    assert text.count("    look()\n") == len(draft(name).pieces)


def test_engines_may_differ_in_any_setting() -> None:
    """A setting of one engine is a parameter, so its name may be no keyword of Python."""
    trace = trace_of("held_is_loaded_again")
    prefill, decode = trace.cluster.engines
    differs = replace(prefill, steps_in_flight=1 if prefill.overlaps else 2)
    cluster = replace(trace.cluster, engines=(differs, decode))
    made = drafted(dataclasses.replace(trace, cluster=cluster))
    assert isinstance(made, Draft)
    assert "overlaps=" in observing(made)
    compile(observing(made), "differs", "exec")
    for settings in made.settings.of_engine.values():
        assert not any(map(keyword.iskeyword, map(str.lower, settings)))
    assert not any(map(keyword.iskeyword, map(str.lower, made.settings.constants)))


def test_what_cannot_be_written_has_a_reason() -> None:
    trace = trace_of("late_end_loses_session")
    pushed = drafted(trace_of("write_awaited_for_ever"))
    assert isinstance(pushed, str)
    assert "push" in pushed
    found = drafted(type(trace)(trace.cluster, trace.events))
    assert found == "the trace has no finding"
    engine = replace(trace.cluster.engines[0], drafts=1, store=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvproof.live.reproducer.settings.KNOWN", {"name", "groups"})
        cluster = replace(trace.cluster, engines=(engine,))
        why = drafted(type(trace)(cluster, (), finding=trace.finding))
    assert isinstance(why, str)
    assert "does not know the option" in why


FACTS = (
    Fact("table", Subject.TABLE, "E", "r0", 0),
    Fact("computed", Subject.COMPUTED, "E", "r0"),
    Fact("other", Subject.COMPUTED, "E", "r1"),
    Fact("wrong", Subject.MISCOUNTED, "E", right=[]),
)
ABOUT = Finding("request_reads_its_own_prefix", said("a", "b"), About("E", "r0"))


def chosen(
    finding: Finding, head: list[list[Any]], base: list[list[Any]] | None
) -> list[Expectation]:
    pieces = [p._replace(engine="E") for p in draft("late_end_loses_session").pieces]
    seen = [Observation(None, values) for values in head]
    others = None if base is None else [Observation(None, values) for values in base]
    return choosing.claims(finding, pieces, FACTS, seen, others)


def test_what_differs_first_about_the_same_request_is_asserted() -> None:
    base = [[[1], 2, 0, []], [[1], 4, 0, []], [[1], 4, 1, []]]
    head = [[[2], 2, 9, []], [[2], 3, 9, []], [[2], 3, 1, []]]
    first = chosen(ABOUT, head, base)[0]
    assert (first.piece, first.fact, first.expected) == (1, FACTS[1], 4)


def test_equal_observations_give_no_claim() -> None:
    same = [[[1], 2, 0, []]]
    assert chosen(ABOUT, same, same) == []


def test_without_a_base_only_what_no_vllm_may_show_is_asserted() -> None:
    head = [[[1], 2, 0, [3]]]
    assert chosen(ABOUT, head, None) == []
    (claim,) = chosen(Finding("references_are_exact", said("a", "b")), head, None)
    assert (claim.fact, claim.expected) == (FACTS[3], [])


def test_a_base_with_the_same_defect_gives_no_claim() -> None:
    wrong = [[[1], 2, 0, [3]]]
    other = [[[1], 2, 0, [4]]]
    assert chosen(Finding("references_are_exact", said("a", "b")), wrong, other) == []


def test_a_death_on_head_alone_is_asserted() -> None:
    made = draft("stray_report_dies")
    seen = [Observation(None, [NO_BASE] * len(made.facts)) for _ in made.pieces]
    died = [*seen[:-1], Observation("AssertionError: ", ())]
    (claim,) = choosing.claims(made.finding, made.pieces, made.facts, died, seen)
    assert claim == Expectation(len(seen) - 1, None, None, "AssertionError: ")
    assert choosing.claims(made.finding, made.pieces, made.facts, died, died) == []


def test_a_run_that_leaves_the_trace_is_noticed() -> None:
    trace, made = trace_of("late_end_loses_session"), draft("late_end_loses_session")
    step = next(i for i, piece in enumerate(made.pieces) if piece.step)
    values: list[Any] = [9 if fact.kind is Subject.SCHEDULED else 0 for fact in made.facts]
    seen = [Observation(None, [0] * len(values))] * step + [Observation(None, values)]
    why = choosing.departs(trace.events, made.pieces, made.facts, seen)
    assert why.startswith("the statements do not follow the trace: in step")


def test_lines_appear_with_their_feature() -> None:
    source = "a  #@ one\nb  #@ two: c\nd"
    assert fitted(source, {"one"}) == "a\nb\nd"
    assert fitted(source, {"two"}) == "c\nd"
    assert len(library().definitions) > 30


def test_the_layout_is_the_one_of_ruff() -> None:
    assert literal({"a": (1, None), 'b"': "c"}) == '{"a": [1, None], \'b"\': "c"}'
    assert call("f(", ["x" * 90]) == ["f(", f"    {'x' * 90},", ")"]
    assert assigned("x", [[1] * 40], 0)[:3] == ["x = [", "    [", "        1,"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("def test_x(): pass", "passes"),
        ("def test_x(): assert 0", "fails"),
        ("import nothing_of_this_name", "cannot run"),
        ("", "cannot run"),
    ],
)
def test_an_outcome_is_what_pytest_says(tmp_path: Path, text: str, outcome: str) -> None:
    import os

    file = tmp_path / "test_x.py"
    file.write_text(text)
    assert running.tested(file, dict(os.environ))[0] == outcome


def test_what_the_invariant_speaks_of_comes_before_what_differs_earlier() -> None:
    facts = (FACTS[1], Fact("queues", Subject.QUEUES, "E", "r0"))
    pieces = [p._replace(engine="E") for p in draft("late_end_loses_session").pieces]
    head = [Observation(None, [1, 2]), Observation(None, [1, 2])]
    base = [Observation(None, [1, 1]), Observation(None, [4, 1])]
    first = choosing.claims(ABOUT, pieces, facts, head, base)[0]
    assert (first.piece, first.fact) == (1, facts[0])
