"""The point of no return: worked out by hand, by another algorithm, and never guessed."""

from collections import deque
from collections.abc import Sequence
from functools import cache

import networkx as nx
import pytest

from kvproof.invariants.invariant import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model import termination
from kvproof.model.config import Cluster
from kvproof.model.events import Abort, Complete, Event, Schedule, Submit, stimulus
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.apply import apply, stimuli
from kvproof.model.state import State, initial
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.point_of_no_return import (
    PointOfNoReturn,
    all_ended,
    numbered,
    point_of_no_return,
)
from tests.cover import others_nightly
from tests.planted import Mistakes, under

pytestmark = pytest.mark.exhaustive

ALL = tuple(INVARIANTS.values())
STATES_MAX = 10_000


def faulty(name: str) -> tuple[Cluster, Mistakes]:
    fault = FAULTS[name]
    return CLUSTERS[fault.cluster], [fault]


@cache
def shortest(name: str) -> tuple[Event, ...]:
    cluster, faults = faulty(name)
    return under(faults, explore, cluster).events


def judged(
    name: str, events: Sequence[Event] = (), states_max: int = STATES_MAX
) -> PointOfNoReturn:
    cluster, faults = faulty(name)
    return under(faults, point_of_no_return, cluster, ALL, events or shortest(name), states_max)


BY_HAND = {
    # Nothing is aborted and no read fails, so both jobs must be loaded by D in every run, and every
    # load counts the last token.
    "decode_loads_whole_prompt": (0, 7),
    # Every load waits for ever: no run of these jobs ends.
    "align_split_during_load": (0, 6),
    # r1 ends alone after event 2 (its submission came first); what it leaves in the cache is a hit
    # for r0 that nobody holds. Before, both can be scheduled in one step, and the hit is held.
    "prediction_forgets_hits": (2, 5),
    # Both are waiting on D, whose next step takes both; the pool holds one. One event earlier D can
    # be scheduled with r0 alone.
    "loads_take_the_last_blocks": (8, 12),
    # r1's load would begin before r0's blocks are cached, and load everything, if D were scheduled
    # before r0's read ends. Event 8 ends it.
    "front_trim": (8, 9),
    # The load of r1 is aborted at event 6. Its transfer can only end well, and then leaks.
    "aborted_load_never_frees": (6, 7),
    # The abort itself is the violation: nobody has to abort.
    "abort_frees_under_load": (6, 6),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_worked_out_by_hand(name: str) -> None:
    answer = judged(name)
    assert (answer.event, answer.length, answer.unknown) == (*BY_HAND[name], "")


def states_of(name: str) -> list[State]:
    """The states of a fault's trace, without the one a violating step leads to."""
    cluster, faults = faulty(name)
    machine = ModelMachine(cluster)
    states = [machine.state]
    for event in shortest(name):
        step = under(faults, machine.take, event)
        if not any(broken(cluster, step, ALL)):
            states.append(step.after)
    return states


def listed(cluster: Cluster, state: State) -> list[Event]:
    return list(stimuli(cluster, state))


@cache
def can_end(name: str) -> frozenset[State]:
    """Every state that reaches the end without a violation: the whole graph, then backwards."""
    cluster, faults = faulty(name)
    graph: nx.DiGraph[State] = nx.DiGraph()
    graph.add_node(initial(cluster))
    queue = deque([initial(cluster)])
    while queue:
        state = queue.popleft()
        for event in under(faults, listed, cluster, state):
            step = under(faults, apply, cluster, state, event)
            if not any(broken(cluster, step, ALL)):
                if step.after not in graph:
                    queue.append(step.after)
                graph.add_edge(state, step.after)
    ends = [state for state in graph if all_ended(cluster, state)]
    return frozenset(ends).union(*(nx.ancestors(graph, end) for end in ends))


def agrees(name: str, event: int) -> bool:
    """Whether the violation can be avoided until an event and not after it."""
    avoidable = [state in can_end(name) for state in states_of(name)]
    return all(avoidable[:event]) and not any(avoidable[event:])


@pytest.mark.parametrize("name", others_nightly(FAULTS, BY_HAND))
def test_backward_reachability_on_the_whole_graph_says_the_same(name: str) -> None:
    event = judged(name).event
    assert event is not None
    assert agrees(name, event)


@pytest.mark.parametrize("name", ["front_trim", "aborted_load_never_frees"])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_wrong_event_would_not_pass(name: str, off: int) -> None:
    event = judged(name).event
    assert event is not None
    assert not agrees(name, event + off)


@pytest.mark.parametrize("name", ["decode_loads_whole_prompt", "loads_take_the_last_blocks"])
def test_a_cut_search_never_names_an_event(name: str) -> None:
    whole = judged(name)
    seen = set()
    for states_max in (1, 2, 3, 5, 10, 20, 40, 80, 120, 160, 200, 300, 400):
        answer = judged(name, states_max=states_max)
        if answer.event is None:
            assert answer.unknown == f"the search was cut at {states_max} states"
            assert answer.unknown in answer.sentence
        else:
            assert (answer.event, answer.unknown) == (whole.event, "")
        assert set(answer.irrelevant) <= set(whole.irrelevant)
        seen.add(answer.event)
    assert seen == {None, whole.event}


def test_a_violation_that_is_avoided_at_once_needs_no_whole_search() -> None:
    answer = judged("abort_frees_under_load", states_max=50)
    assert (answer.event, answer.unknown) == (6, "")


def test_the_end_asks_for_every_job() -> None:
    cluster = CLUSTERS["full"]
    assert termination.over(initial(cluster))
    assert not all_ended(cluster, initial(cluster))


def test_requests_that_can_still_end() -> None:
    cluster = CLUSTERS["full"]
    events = (Submit("E", "r0"), Schedule("E"), Complete("E"))
    answer = point_of_no_return(cluster, ALL, events, STATES_MAX)
    assert (answer.event, answer.unknown, answer.irrelevant) == (None, "", ())
    assert answer.sentence == (
        "All requests could still end without a violation after the last event."
    )


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.strategies.explorer.point_of_no_return.PROGRESS_EVERY", 10)
    told: list[tuple[int, int]] = []
    name = "decode_loads_whole_prompt"
    cluster, faults = faulty(name)
    under(
        faults,
        point_of_no_return,
        cluster,
        ALL,
        shortest(name),
        STATES_MAX,
        progress=lambda *seen: told.append(seen),
    )
    assert len(told) > 2
    assert [seen for seen, _ in told] == [10 * n for n in range(1, len(told) + 1)]


# Events that do not matter.


def breaks_last(name: str, events: Sequence[Event], invariant: str) -> bool:
    """Whether these events, those that are possible, break an invariant with the last of them."""
    cluster, faults = faulty(name)
    machine = ModelMachine(cluster)
    found: list[list[str]] = []
    for event in map(stimulus, events):
        if event in under(faults, machine.stimuli):
            step = under(faults, machine.take, event)
            found.append([f.invariant for f in broken(cluster, step, ALL)])
    return bool(found) and invariant in found[-1] and not any(found[:-1])


@pytest.mark.parametrize(
    "name", [n for n in FAULTS if "every_request_can_finish" not in FAULTS[n].breaks]
)
def test_of_a_shortest_trace_every_event_matters(name: str) -> None:
    """Without one of them the trace would be shorter."""
    assert judged(name).irrelevant == ()


def test_another_request_does_not_matter() -> None:
    """r0 is served on P, and waits there to be read, before r1 breaks the rule on D."""
    name = "abort_frees_under_load"
    served = (Submit("P", "r0"), *(Schedule("P"), Complete("P")) * 2)
    events = (*served, *map(stimulus, shortest(name)))
    assert breaks_last(name, events, "nothing_reused_under_transfer")
    answer = judged(name, events)
    assert answer.irrelevant == (1, 2, 3, 4, 5)
    assert answer.event == answer.length == 11
    assert answer.sentence == (
        "The violation could be avoided until its last event; events 1 to 5 do not matter to it."
    )
    assert breaks_last(name, events[5:], "nothing_reused_under_transfer")
    assert not breaks_last(name, events[6:], "nothing_reused_under_transfer")


def test_events_between_do_not_matter() -> None:
    """The user of r0 gives up while r1 is on its way; r1 needs no more than its own events."""
    name = "aborted_load_never_frees"
    trace = list(map(stimulus, shortest(name)))
    trace[3:3] = [Submit("P", "r0")]
    trace[6:6] = [Abort("P", "r0")]
    answer = judged(name, trace)
    assert answer.irrelevant == (4, 7)
    assert answer.event == 8
    assert answer.sentence == (
        "The violation could no longer be avoided after event 8; "
        "events 4 and 7 do not matter to it."
    )


def test_what_does_not_matter_can_be_left_out_together() -> None:
    """Either request alone breaks the rule on D: each could be left out, both could not."""
    name = "decode_loads_whole_prompt"
    events = (
        *(Submit("P", "r0"), Submit("P", "r1")),
        *(Schedule("P"), Complete("P")) * 2,
        *(Submit("D", "r0"), Submit("D", "r1"), Schedule("D")),
    )
    answer = judged(name, events)
    assert answer.irrelevant == (2, 8)
    for left_out in ((), (2, 8), (7,), (8,), (7, 8)):
        rest = [e for n, e in enumerate(events, 1) if n not in left_out]
        assert breaks_last(name, rest, "prefill_and_decode_agree") == (left_out != (7, 8))


def test_what_comes_after_the_dead_end_does_not_matter() -> None:
    """After event 8 only D can be scheduled; once both loads are promised blocks, nothing helps."""
    answer = judged("loads_take_the_last_blocks")
    assert answer.irrelevant == (9, 10, 11, 12)
    assert answer.sentence == (
        "The violation could no longer be avoided after event 8; "
        "events 9 to 12 do not matter to it."
    )


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((3,), "event 3"),
        ((2, 3), "events 2 and 3"),
        ((2, 4, 5, 6, 9), "events 2, 4 to 6 and 9"),
        ((1, 2, 3), "events 1 to 3"),
    ],
)
def test_numbers_in_words(events: tuple[int, ...], said: str) -> None:
    assert numbered(events) == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            PointOfNoReturn(5, "", (2, 3), 9),
            "The violation could no longer be avoided after event 5; ",
        ),
        (PointOfNoReturn(9, "", (2,), 9), "until its last event; event 2 does not matter to it."),
        (PointOfNoReturn(0, "", (), 9), "The violation could not be avoided, whatever was done."),
        (
            PointOfNoReturn(None, "cut", (), 9),
            "It is unknown when the violation could no longer be ",
        ),
    ],
)
def test_sentences(answer: PointOfNoReturn, said: str) -> None:
    assert said in answer.sentence
