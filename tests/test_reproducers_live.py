"""Reproducers that the gate writes, on real vLLM: each fails with a mistake and passes without."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kvproof.cli.answer import traced
from kvproof.cli.machines import maker
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.live import reproducer
from kvproof.live.reproducer import running
from kvproof.live.reproducer.choosing import Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace
from kvproof.strategies.sampling.stateful import sample
from tests.cover import others_nightly
from tests.mistakes import MISTAKES, Mistake
from tests.watching import live_machine

pytestmark = pytest.mark.live

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


def trace_of(name: str) -> Trace:
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


@pytest.mark.parametrize("name", others_nightly(ASSERTS, ["untouched_hits", "front_trim"]))
def test_a_reproducer_fails_with_the_mistake_and_passes_without(name: str, tmp_path: Path) -> None:
    made = reproducer.write(trace_of(name), WithAndWithout(MISTAKES[name]), tmp_path, name)
    assert isinstance(made, Path), made
    assert ASSERTS[name] in made.read_text()
