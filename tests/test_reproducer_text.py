"""Reproducers that the gate writes: their text, what they assert, how they are run, and that each
fails on real vLLM with a mistake and passes without."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kvproof.cli.answer import traced
from kvproof.cli.machines import maker
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.live import reproducer
from kvproof.live.reproducer import choosing, running
from kvproof.live.reproducer.choosing import Claim, Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.live.reproducer.writing import Draft, drafted, generated, observing
from kvproof.model.because import About
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace
from kvproof.strategies.sampling.stateful import sample
from tests.cover import others_nightly
from tests.findings import FINDINGS, imported, trace_of
from tests.in_vllm import Mistake
from tests.mistakes import MISTAKES
from tests.reasons import said
from tests.watching import live_machine

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
    assert imported(text) <= {"vllm", "torch", "pytest"}
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


def chosen(base: list[Shown], head: list[Shown]) -> list[Claim]:
    both = [Observed(tuple({"engine": each} for each in seen)) for seen in (base, head)]
    return choosing.claims(ABOUT, "engine", *both)


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


# On real vLLM


Found = TypeVar("Found")


def in_a_fork(does: Callable[[], Found]) -> Found:
    """What a function returns in a fork of this process."""
    reads, writes = os.pipe()
    if os.fork() == 0:
        try:
            with os.fdopen(writes, "wb") as out:
                pickle.dump(does(), out)
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        found: Found = pickle.load(answer)
    os.wait()
    return found


class WithAndWithout:
    """vLLM as released, and with a mistake."""

    def __init__(self, mistake: Mistake) -> None:
        self.mistake = mistake

    def observed(self, file: Path) -> tuple[Observed, Observed]:
        return self._on_both(lambda: running.observed(file))

    def tested(self, file: Path) -> tuple[RanFile, RanFile]:
        return self._on_both(lambda: running.tested(file))

    def _on_both(self, does: Callable[[], Found]) -> tuple[Found, Found]:
        def with_it() -> Found:
            with pytest.MonkeyPatch.context() as patch:
                self.mistake.patch(patch)
                return does()

        return in_a_fork(does), in_a_fork(with_it)


def shown_by(name: str) -> Trace:
    """A run of live vLLM that shows a mistake."""
    cluster, checks = CLUSTERS[FAULTS[name].cluster], [CHECKS[MISTAKES[name].finds]]
    with pytest.MonkeyPatch.context() as patch:
        MISTAKES[name].patch(patch)
        for seed in range(4):
            found = sample(cluster, live_machine, checks, seed=seed, examples=90, use_jobs=True)
            if found.finding is not None:
                break
        trace = traced(Setup(cluster, (), None), maker("live"), found, 0)
    assert trace is not None
    return trace


ASSERTS = {
    "untouched_hits": "shown(engine)['wrong references']",
    "front_trim": "shown(decode)['read']",
    "late_output_takes_placeholder": "['placeholders']",
    "loads_take_the_last_blocks": "shown(decode)['requests']",
    "abort_frees_under_load": "shown(decode)",
}
"""What the reproducer of each mistake asserts."""


@pytest.mark.live
@pytest.mark.parametrize("name", others_nightly(ASSERTS, ["untouched_hits", "front_trim"]))
def test_a_reproducer_fails_with_the_mistake_and_passes_without(name: str, tmp_path: Path) -> None:
    made = reproducer.write(shown_by(name), WithAndWithout(MISTAKES[name]), tmp_path, name)
    assert isinstance(made, Path), made
    assert ASSERTS[name] in made.read_text()
