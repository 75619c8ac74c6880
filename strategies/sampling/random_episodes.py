"""Random episodes, each with choices of its own, and the shortest one that fails in the same way.

A search of Hypothesis begins with the simplest episode and then reuses parts of earlier ones. That
is too little variety where a cluster gets only one or two episodes.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import hypothesis
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import get_state_machine_test

from kvproof.model.drawing import of_the_seed
from kvproof.model.errors import UsageError
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.episode import CacheMachine, Target

BYTES = 8_192
"""The number of bytes from which one episode is chosen: the largest that Hypothesis takes."""


class RandomEpisodes:
    """Episodes of a target, each of about this number of choices. The same seed gives the same
    episodes."""

    def __init__(self, target: Target, choices: int, seed: int) -> None:
        self.random, self.choices = Random(seed), choices

        @hypothesis.seed(seed)
        def machine() -> CacheMachine:
            return CacheMachine(target)

        settings = hypothesis.settings(
            stateful_step_count=choices,
            database=InMemoryExampleDatabase(),
            deadline=None,
            derandomize=False,
            backend="hypothesis",
            phases=[hypothesis.Phase.reuse, hypothesis.Phase.shrink],
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
        )
        self.test = get_state_machine_test(machine, settings=settings)  # type: ignore[arg-type]
        self.take: Callable[[bytes], object] = self.test.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def run(self) -> None:
        """Run the next episode. The target learns of a violation; other exceptions of the machine
        are passed on. Raises UsageError if the bytes are not enough for an episode."""
        with suppress(Violated):
            if self.take(self.random.randbytes(BYTES)) is None:
                raise UsageError(
                    f"An episode of {self.choices} choices needs more than Hypothesis allows for "
                    "one test. Use fewer."
                )

    def shrink(self) -> None:
        """Look for a shorter episode that fails in the same way as an earlier one. Raises Violated
        with the shortest one; returns if no episode fails again."""
        with of_the_seed():
            self.test()
