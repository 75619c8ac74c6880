"""What Hypothesis does once in a process, done before others are forked from it."""

import hypothesis
from hypothesis import strategies as st

INTEGERS = 50
"""Enough that some of them are such constants."""


def warm() -> None:
    """Let Hypothesis read the constants of the imported modules, as it does in a process before it
    first draws one. It takes a fraction of a second, which each fork would need again."""

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=5,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.lists(st.integers(), min_size=INTEGERS, max_size=INTEGERS))
    def draw(_integers: list[int]) -> None:
        pass

    draw()
