"""Who may lose his blocks to whom, and what is left of him."""

from kvproof.model.events import Preempt, Release
from kvproof.model.reference.scheduling.scheduler import take_choice
from kvproof.model.state import COUNTS, LATE, Flight
from tests.by_hand import (
    FULL,
    MAMBA,
    config,
    running,
    step,
)

NEEDY = running("abcdef", (1,), computed=2, num_cached_blocks=(1,))
VICTIM = running("wxyz", (2, 3), computed=4, name="r1", num_cached_blocks=(2,))


def test_a_token_that_is_under_way_is_kept_for_later() -> None:
    cfg = config(FULL, num_blocks=4, steps_in_flight=2)
    flying = {"steps": ((Flight("r1", 1, True),),), "pending": (("r1", 1),)}
    work = step(cfg, NEEDY, VICTIM, **flying)
    assert [f.fate for f in work.engine.flights("r1")] == [COUNTS]
    take_choice(work, Preempt("r1", "r0"))
    assert [f.fate for f in work.engine.flights("r1")] == [LATE]
    assert work.engine.pending == ()


# Letting go without a preemption


def test_what_a_step_in_flight_may_read_is_not_left_behind_yet() -> None:
    held = running("abcdefgh", (1, 2), (3, 4), computed=4)
    cfg = config(FULL, MAMBA, steps_in_flight=2)
    work = step(cfg, held, steps=((Flight("r0", 2, False),),))
    take_choice(work, Release("r0"))
    assert work.chose == [Release("r0", freed=((), ()))]
