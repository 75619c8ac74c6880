"""What must be true of what the engines answered, on any device."""

import inspect

from kvproof.watch.shown import JUDGED
from tests.engine.process import Process
from tests.engine.workloads import KINDS, RARE, Served

REPEATED = ({"a", "g"}, {"saved", "loaded", "failed", "again"})
"""Requests with the same prompt: cached, loaded or computed, they get the same tokens."""

NOT_REPEATABLE = "mamba"
"""The CPU kernels of this model compute a state otherwise in one chunk than in several."""

LATER = {"priority_is_kept": "deferred_waiting"}
"""What a scheduler of vLLM must keep for a check to be judged, where older releases do not."""


def is_served(name: str, served: Served) -> None:
    """All was done: with preemptions, and with failed loads where there is a store."""
    answer, kind = served.answer, KINDS[name.split()[0]]
    assert answer.error is None, answer.error
    for action, result in zip(kind.work, answer.results, strict=True):
        if action == ["preempted"] or action[-1] is False:
            assert result > 0, action
    outputs = answer.outputs
    asked = {action[1] for action in kind.work if action[0] == "add"}
    assert set(outputs) == asked - {"e"}  # which was aborted
    assert {output.reason for output in outputs.values()} == {"length"}
    for names in REPEATED:
        if kind.model != NOT_REPEATABLE and names <= set(outputs):
            assert len({tuple(outputs[each].tokens[:8]) for each in names}) == 1, names


def is_unchanged(name: str, plain: Served, watched: Served) -> None:
    """The sanitizer judged each invariant that can be judged, and changed nothing."""
    assert watched.answer.error is None, watched.answer.error
    assert watched.answer.outputs == plain.answer.outputs
    assert watched.answer.results == plain.answer.results
    meant = {each for each in JUDGED if name.split()[0] in RARE.get(each, KINDS)}
    silent = sorted(each for each in meant if not watched.judged.get(each) and _is_shown(each))
    assert not silent, f"{name}: not judged: {', '.join(silent)}"


def _is_shown(check: str) -> bool:
    """Whether the vLLM under test keeps what the check must be shown."""
    from vllm.v1.core.sched.scheduler import Scheduler

    return LATER.get(check, "") in inspect.getsource(Scheduler)


def is_content(process: Process) -> None:
    """The sanitizer was on, has found nothing, and made no mistake."""
    assert process.judged, process.log
    assert process.complaints == [], process.log
