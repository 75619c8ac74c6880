"""Mistakes planted in real engines: what the sanitizer finds, and what shows without it."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.engine.mistakes import MISTAKES, kinds
from tests.engine.ordinary import pool
from tests.engine.process import OPTIONS, Answer, Process

LIMIT_S = 900.0
CLEAN = ""
"""The name of the mistake of an engine that has none."""


NO_ORACLE = ("mamba",)
"""LFM2 rounds differently where a prompt is split differently."""


class Row(NamedTuple):
    """What happened with one mistake. `found` is the first invariant that did not hold on the
    watched engine, and `ended` says whether a violation ended it: one that costs a user little is
    only printed. `seconds` is the time from the first request on; `alone` is what showed without
    kvproof."""

    mistake: str
    found: str | None
    ended: bool
    error: str
    seconds: float
    alone: str

    @property
    def named_rightly(self) -> bool:
        """Whether the invariant names the mistake."""
        return self.found in MISTAKES[self.mistake].names


class Bench:
    """Engines of one kind in one mode, one after the other. A process serves several of them, until
    it can serve no more. `printed` is what the last run printed on standard error."""

    def __init__(self, models: Path, model: str, options: dict[str, Any], mode: str | None) -> None:
        self.models = models
        self.mode = mode
        self.actions = ["engine", model, OPTIONS | pool(model) | options]
        self.printed = self._log = ""
        self._stack = ExitStack()
        self._process: Process | None = None

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, mistake: str) -> Answer:
        """The workload on an engine with this mistake."""
        built = self._built(mistake)
        if built.error is not None and self._process is not None:  # it may be what was left over
            self._renew()
            built = self._built(mistake)
        if built.error is not None:
            return built
        before = len(self._process.printed()) if self._process is not None else 0
        answer = self._take(["call", "tests.engine.ordinary:work"])
        self.printed = self._log[before:]
        if found(self.printed) and not ended(answer) and self._process is not None:
            self._renew()  # a process prints a finding of each invariant a few times only
        return answer

    def _built(self, mistake: str) -> Answer:
        return self._take(["call", "tests.engine.mistakes:plant", mistake], self.actions)

    def _take(self, *actions: list[Any]) -> Answer:
        if self._process is None:
            process = Process(self.models, mode=self.mode, limit_s=LIMIT_S)
            self._process = self._stack.enter_context(process)
        try:
            answer = self._process.take(*actions)
            self._log = self._process.printed()
            return answer
        except AssertionError as error:
            self._log = self._process.printed()
            self._renew()
            return Answer({}, [], f"process: {str(error).splitlines()[0]}", LIMIT_S)

    def _renew(self) -> None:
        try:
            self._stack.close()
        except AssertionError:  # it did not end by itself
            self._stack = ExitStack()
        self._process = None


def tokens(answer: Answer) -> dict[str, list[int]]:
    """The answers of a run that came to its end."""
    assert answer.error is None, answer.error
    found: dict[str, list[int]] = answer.results[-1]["tokens"]
    return found


def found(printed: str) -> str | None:
    """The first invariant that a run said to be violated, if any."""
    violation = re.search(r"VIOLATED (\w+)", printed)
    return violation[1] if violation else None


def ended(answer: Answer) -> bool:
    """Whether a violation has ended a run."""
    return (answer.error or "").startswith("Violation: VIOLATED")


def shown(answer: Answer, clean: Answer, *, oracle: bool = True) -> str:
    """What a user sees of a run without kvproof, compared with an engine without the mistake. The
    tokens of some models depend on how a prompt is split into steps: they are no `oracle`."""
    if answer.error is not None:
        kind, _, why = answer.error.partition(":")
        return (
            "hang"
            if kind == "Hangs" or "did not answer" in why
            else f"crash ({kind}{why[:60].rstrip()})"
        )
    right, have = tokens(clean), tokens(answer)
    wrong = sum(1 for name in right if have.get(name) != right[name])
    if wrong and not oracle:
        return f"other tokens in {wrong} of {len(right)} answers, as after any other split"
    if wrong:
        return f"wrong tokens in {wrong} of {len(right)} answers"
    steps = [each.results[-1]["steps"] for each in (answer, clean)]
    return "nothing seen" + (f" ({steps[0]} steps, not {steps[1]})" if len(set(steps)) > 1 else "")


def rows(models: Path, names: list[str], *, alone: bool = True) -> Iterator[Row]:
    """Each mistake on a watched engine, and on one that is not if `alone`. An engine without a
    mistake must be served with the same answers in both, and nothing found."""
    for model, options, some in kinds(names):
        unwatched: dict[str, Answer] = {}
        if alone:
            with Bench(models, model, options, None) as bench:
                unwatched = {name: bench.run(name) for name in (CLEAN, *some)}
        with Bench(models, model, options, "raise") as bench:
            clean = bench.run(CLEAN)
            assert clean.error is None, f"{model} without a mistake: {clean.error}"
            assert found(bench.printed) is None, bench.printed
            if alone:
                assert tokens(clean) == tokens(unwatched[CLEAN])
            for name in some:
                watched = bench.run(name)
                seen = ""
                if alone:
                    oracle = model not in NO_ORACLE
                    seen = shown(unwatched[name], unwatched[CLEAN], oracle=oracle)
                error = watched.error or ""
                yield Row(name, found(bench.printed), ended(watched), error, watched.seconds, seen)
