"""Reproducers that the gate writes: their text, what they assert, and how they are run."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.live.reproducer import choosing
from kvproof.live.reproducer.choosing import Claim, Observed
from kvproof.live.reproducer.writing import Draft, drafted, generated, observing
from kvproof.model.because import About
from kvproof.model.finding import Finding
from tests.findings import FINDINGS, trace_of
from tests.reasons import said

Shown = dict[str, Any]

WRITTEN = [name for name in FINDINGS if not trace_of(name).cluster.pushes]

ABOUT = Finding("request_reads_its_own_prefix", said("a", "b"), About("E", "r0"))


def draft(name: str) -> Draft:
    made = drafted(trace_of(name))
    assert isinstance(made, Draft), made
    return made


@pytest.mark.parametrize("name", WRITTEN)
def test_every_text_is_python_that_needs_vllm_torch_and_pytest_alone(name: str) -> None:
    made = draft(name)
    text = generated(made, Claim(len(made.statements) - 1), "test_it")
    assert "kvproof" not in text
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported - sys.stdlib_module_names <= {"vllm", "torch", "pytest"}
    assert observing(made).count("    show(") == len(made.statements)


def test_every_text_passes_ruff_with_its_defaults(tmp_path: Path) -> None:
    for name in WRITTEN:
        made = draft(name)
        text = generated(made, Claim(len(made.statements) - 1), "test_it")
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    ran = subprocess.run([ruff, "check", "--isolated", tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-500:]


def test_what_cannot_be_written_has_a_reason() -> None:
    trace = trace_of("late_end_loses_session")
    assert "push" in str(drafted(trace_of("write_awaited_for_ever")))
    assert drafted(type(trace)(trace.cluster, trace.events)) == "the trace has no finding"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvproof.live.reproducer.writing.KNOWN", {"name", "groups"})
        assert "does not know the option num_blocks" in str(drafted(trace))


def chosen(base: list[Shown], head: list[Shown], finding: Finding = ABOUT) -> list[Claim]:
    both = [Observed(tuple({"engine": each} for each in seen)) for seen in (base, head)]
    return choosing.claims(finding, "engine", *both)


def request(**shown: Any) -> Shown:
    return {"request r0": shown}


def test_what_no_vllm_may_show_comes_first_unless_base_shows_it_too() -> None:
    base, head = {"wrong references": [], **request(hit=1)}, {"wrong references": [3]}
    assert chosen([base], [{**head, **request(hit=2)}])[0].expected == []
    assert chosen([{"wrong references": [4]}], [head]) == []


def test_a_death_on_head_alone_is_asserted() -> None:
    finding = Finding("engine_survives", said("a", "b"), About("E"))
    lives = Observed(({"engine": {}}, {"engine": {}}))
    dies = Observed(lives.seen[:1], raised="AssertionError")
    assert choosing.claims(finding, "engine", lives, dies) == [Claim(1)]
    assert choosing.claims(finding, "engine", dies, dies) == []


def test_a_run_that_leaves_the_trace_is_noticed() -> None:
    trace, made = trace_of("late_end_loses_session"), draft("late_end_loses_session")
    shows = {name: {"scheduled": {"r0": 99}} for name in made.engines.values()}
    seen = Observed((shows,) * len(made.statements))
    why = choosing.departs(trace.events, made.engines, seen)
    assert why.startswith("the statements do not follow the trace: in step")


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
    (tmp_path / "test_x.py").write_text(text)
    says = "from kvproof.live.reproducer.running import tested; from pathlib import Path\n"
    says += "print(tested(Path('test_x.py')).outcome)"
    ran = subprocess.run(
        [sys.executable, "-c", says], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert ran.stdout == f"{outcome}\n", ran.stderr
