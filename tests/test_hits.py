"""What a prefix hit owes: with an excuse it is counted, without one it is violated."""

from collections.abc import Sequence

import pytest

from kvproof.invariants.check import Check, Tally, broken
from kvproof.invariants.hits import repeated_prompt_hits
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Schedule
from kvproof.model.ghost_state import Ghost, Served
from kvproof.model.state import initial
from kvproof.model.step import Admission, Effects, Step

FULL, WINDOW, STATE = Group("full", 2), Group("window", 2, window=3), Group("mamba", 2)
EARLIER = (Served("abcdef", 0),)


def cluster(*groups: Group) -> Cluster:
    return Cluster("c", (EngineConfig("E", groups),), (Job("r1", "abcdxy"),))


def admitted(here: Cluster, hit: int, served: Sequence[Served] = EARLIER) -> Step:
    """r1, "abcdxy", is admitted with a hit after "abcdef" was served."""
    before = initial(here)
    engine = before.engines[0]._replace(ghost=Ghost(EARLIER))
    before = before.with_engine(engine)
    admission = Admission("E", "r1", "abcdxy", "local", hit, 0, (), tuple(served))
    return Step(before, Schedule("E"), Effects(admissions=(admission,)), before)


def answers(check: Check, here: Cluster, step: Step) -> tuple[int, int, int]:
    """How often a check judged a step, excused a break, and found one without an excuse."""
    tally = Tally()
    found = len([*broken(here, step, [check], tally)])
    return tally.judged[check.id], tally.excused[check.id], found


@pytest.mark.parametrize(
    ("groups", "hit", "expected"),
    [
        ((FULL,), 4, (1, 0, 0)),
        ((FULL,), 2, (1, 0, 1)),
        ((FULL, WINDOW), 4, (1, 0, 0)),
        ((FULL, WINDOW), 2, (1, 0, 1)),  # a window keeps what each boundary of its prompt needs
        ((FULL, STATE), 2, (1, 1, 0)),  # perhaps no chunk ended at token 4
    ],
)
def test_a_prompt_hits_what_it_shares_with_an_earlier_one_unless_no_state_is_there(
    groups: tuple[Group, ...], hit: int, expected: tuple[int, int, int]
) -> None:
    here = cluster(*groups)
    assert answers(repeated_prompt_hits, here, admitted(here, hit)) == expected


def test_a_block_that_is_lost_in_the_step_excuses_a_shorter_hit() -> None:
    here = cluster(FULL)
    assert answers(repeated_prompt_hits, here, admitted(here, 0, served=())) == (1, 1, 0)
