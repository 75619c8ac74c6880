"""What a prefix hit owes: with an excuse it is counted, without one it is violated."""

from collections.abc import Sequence

import pytest

from kvproof.invariants.hits import (
    computed_tokens_are_cached,
    held_attention_is_hit,
    repeated_prompt_hits,
)
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Accepted, Complete, Event, Schedule
from kvproof.model.ghost_state import Ghost, Served
from kvproof.model.state import RUNNING, Key, Request, initial
from kvproof.model.step import Admission, Effects, Step
from tests.reasons import answers

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


@pytest.mark.parametrize(("hit", "expected"), [(4, (1, 0, 0)), (2, (1, 1, 0))])
def test_what_attention_holds_is_loaded_again_only_with_an_excuse(
    hit: int, expected: tuple[int, int, int]
) -> None:
    """Full attention holds four of the six tokens. The state is loaded in any case."""
    here = cluster(FULL, STATE)
    before = initial(here)
    cached = (((0, "ab"), (1,)), ((0, "abcd"), (2,)))
    admission = Admission("E", "r1", "abcdxy", "remote", hit, 5 - hit, cached)
    step = Step(before, Schedule("E"), Effects(admissions=(admission,)), before)
    assert answers(held_attention_is_hit, here, step) == expected


def ended(here: Cluster, request: Request, event: Event, *cached: Key) -> Step:
    """A request ends, and these prefixes are cached after it."""
    state = initial(here)
    after = state.engines[0]._replace(cached=tuple((key, (1,)) for key in sorted(cached)))
    before = after._replace(requests=(request,))
    return Step(state.with_engine(before), event, Effects(), state.with_engine(after))


ANSWERED = Request("r1", RUNNING, "abc", 3, 3, output="..", computed=4, tables=((1, 2, 3),))
"""Its prompt and the first token of its answer fill two blocks."""


def test_what_the_last_output_makes_known_may_be_missing() -> None:
    """The step has computed the last token of its answer and one draft after it, which its output
    accepts. No step follows that could cache them."""
    drafting = EngineConfig("E", (FULL,), drafts=1)
    here = Cluster("c", (drafting,), (Job("r1", "abcd"),))
    request = ANSWERED._replace(computed=6, drafts=1)
    accepted = Complete("E", Accepted(r1=1))
    step = ended(here, request, accepted, (0, "ab"), (0, "abc."))
    assert answers(computed_tokens_are_cached, here, step) == (2, 1, 0)
    step = ended(here, request, accepted, (0, "ab"))
    assert answers(computed_tokens_are_cached, here, step)[2] == 1


@pytest.mark.parametrize(
    ("other", "cached", "expected"),
    [
        (WINDOW, ((1, "ab"), (1, "abcd")), (2, 0, 0)),
        (WINDOW, ((1, "abcd"),), (2, 0, 1)),  # a step has computed the boundary
        (STATE, ((1, "abcd"),), (2, 1, 0)),  # no chunk has ended at the other one
        (STATE, (), (2, 1, 1)),
    ],
)
def test_what_a_step_has_computed_is_cached_beside_attention(
    other: Group, cached: tuple[Key, ...], expected: tuple[int, int, int]
) -> None:
    here = cluster(FULL, other)
    before = initial(here)
    request = Request("r1", RUNNING, "abcd", 4, 1, computed=4, tables=((1, 2), (3, 4)))
    keys = ((0, "ab"), (0, "abcd"), *cached)
    after = before.engines[0]._replace(
        requests=(request,), cached=tuple((key, (1,)) for key in keys)
    )
    step = Step(before, Schedule("E"), Effects(), before.with_engine(after))
    assert answers(computed_tokens_are_cached, here, step) == expected
