"""Hypothesis drives a machine: random jobs in random order, shrunk to a smallest failing run.

One seed gives one outcome.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis.errors import Flaky

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.machine import MakeMachine
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.episode import Target
from kvproof.strategies.sampling.random_episodes import RandomEpisodes
from kvproof.strategies.verdict import INTERRUPTED, NOT_TWICE, Outcome, Verdict

Progress = Callable[[int, int], None]
"""Called after each episode with the number of episodes done and the number wanted."""


SHRINK_RUNS = 3_000
"""The number of runs that shrinking tries before it returns the shortest failing run so far. It is
a number and not a time, so that the same seed gives the same run."""

CUT = "shrinking ended after {} runs, so the run may be longer than it need be"


class _ShrunkEnough(KeyboardInterrupt):
    """An exception that ends shrinking: Hypothesis shrinks no run that ends with it."""


class Covered:
    """What complete episodes covered; one with a violation ends with it. The runs that Hypothesis
    makes while it shrinks a failure are not included."""

    def __init__(
        self, wanted: int, progress: Progress | None, checks: Iterable[Check] = ()
    ) -> None:
        self.wanted = wanted
        self.judged = {each.id: 0 for each in checks if each.kind != "eventually"}
        self.progress = progress
        self.examples = 0
        self.events: Counter[str] = Counter()
        self.open = True

    def add(self, run: Run) -> None:
        """Count one episode."""
        if not self.open:
            return
        self.examples += 1
        self.events.update(type(step.event).__name__ for step in run.steps)
        for name in self.judged:
            self.judged[name] += run.tally.judged[name]
        if self.progress is not None:
            self.progress(self.examples, self.wanted)

    def end(self, violated: Violated) -> None:
        """Count the first episode with a violation, and nothing after it."""
        if self.open:
            self.open = False
            self.examples += 1
            self.events.update(type(step.event).__name__ for step in violated.steps)

    def coverage(self) -> dict[str, Any]:
        """Episodes, steps, events by kind, and how often each check of a step had something to
        judge; without a violation, also the share that may show one (see `unseen_at_most`)."""
        covered = {
            "examples": self.examples,
            "steps": self.events.total(),
            "events": dict(sorted(self.events.items())),
            "judged": self.judged,
        }
        return covered | ({"unseen_at_most": unseen_at_most(self.examples)} if self.open else {})


def unseen_at_most(examples: int) -> float:
    """The rule of three: if episodes were independent samples, then with 95 % confidence at most
    this share of them would show a violation."""
    return min(3 / examples, 1.0) if examples else 1.0


def _check(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{name} is {value}, less than 1. Use a whole number from 1 on.")


def sample(
    cluster: Cluster,
    make_machine: MakeMachine,
    invariants: Iterable[Check] | None = None,
    seed: int = 0,
    examples: int = 200,
    steps: int = 40,
    use_jobs: bool = False,
    shrink: bool = True,
    progress: Progress | None = None,
    failed: Callable[[Violated], None] | None = None,
    covered: Covered | None = None,
) -> Outcome:
    """Run `examples` episodes of about `steps` choices; the same seed gives the same outcome.

    With `use_jobs` every episode uses the jobs of the cluster, in any order; otherwise half of the
    episodes do, and the other half generates random jobs. `shrink=False` reports a failing run as
    it was found, which is quicker. `failed` is called once, with the first run that fails. The runs
    after it, which shrink it, are not counted. `covered` has what earlier episodes covered, and
    counts these too.

    SAMPLED if all invariants hold; VIOLATED, with the smallest failing run found, if one does not;
    UNKNOWN if the user interrupted the search or the machine did not behave the same twice. If the
    user interrupts the shrinking, or it has tried `SHRINK_RUNS` runs, the result is VIOLATED with
    the shortest run so far. Other exceptions of the machine are passed on.
    """
    _check("The number of examples", examples)
    _check("The number of steps", steps)
    chosen = None if invariants is None else tuple(invariants)
    counts = covered or Covered(examples, progress, CHECKS.values() if chosen is None else chosen)

    def add(run: Run) -> None:
        counts.add(run)
        count_run()

    shortest: list[Violated] = []
    tried = 0

    def count_run() -> None:
        nonlocal tried
        tried += bool(shortest)
        if tried > SHRINK_RUNS:
            raise _ShrunkEnough

    def close(violated: Violated) -> None:
        if counts.open and failed is not None:
            failed(violated)
        counts.end(violated)  # the following runs shrink this one
        if not shortest or len(violated.steps) <= len(shortest[0].steps):
            shortest[:] = [violated]
        count_run()

    target = Target(cluster, make_machine, chosen, use_jobs, add, close)
    episodes = RandomEpisodes(target, steps, seed)
    begin = time.monotonic()

    def outcome(verdict: Verdict, **rest: Any) -> Outcome:
        return Outcome(verdict, counts.coverage(), seconds=time.monotonic() - begin, **rest)

    def broken(violated: Violated, reason: str = "") -> Outcome:
        return outcome(
            Verdict.VIOLATED,
            events=violated.events,
            finding=violated.finding,
            cluster=violated.cluster,
            reason=reason,
        )

    with interruption.stoppable() as stopped:
        try:
            for _ in range(examples):
                interruption.check()
                episodes.run()
                if shortest:
                    break
            if shortest and shrink:
                episodes.shrink()
        except Violated as violated:
            return broken(violated)
        except _ShrunkEnough:
            return broken(shortest[0], CUT.format(f"{SHRINK_RUNS:,}"))
        except Flaky:
            return outcome(Verdict.UNKNOWN, reason=NOT_TWICE)
    if stopped:
        if shortest:
            return broken(shortest[0], INTERRUPTED)
        return outcome(Verdict.UNKNOWN, reason=INTERRUPTED)
    if shortest and shrink:
        return outcome(Verdict.UNKNOWN, reason=NOT_TWICE)
    return broken(shortest[0]) if shortest else outcome(Verdict.SAMPLED)
