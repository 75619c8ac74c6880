"""Progress under fairness: lassos of graphs made by hand, and of faults. That no preset has one is
asked by `test_explorer`."""

import networkx as nx
import pytest
from msgspec.structs import replace

from kvproof.model import termination
from kvproof.model.config import Cluster, Job
from kvproof.model.events import (
    Abort,
    Complete,
    Event,
    Evict,
    Preempt,
    ResetPrefixCache,
    Schedule,
    TransferDone,
    TransferLost,
)
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import WAITING, Request, initial
from kvproof.strategies.explorer.fairness import (
    DEADLOCK,
    GOES_ROUND,
    RESTS,
    Lasso,
    duty,
    lasso,
)
from kvproof.strategies.waits import HangContext, waits
from tests.breadth_first import Reached, search
from tests.cover import TENTH, others_nightly
from tests.planted import under

pytestmark = pytest.mark.exhaustive

PD = CLUSTERS["pd"]
OVER = 9
"""The number, in a graph made by hand, of the state in which all is over."""

evict, reset, abort = Evict("P", 1), ResetPrefixCache("P"), Abort("P", "r0")
schedule, complete, other = Schedule("P", ()), Complete("P"), Schedule("D", ())
done, lost = TransferDone("r0"), TransferLost("r0")


def graph(*edges: tuple[int, int, Event]) -> Reached:
    """A search by hand: r0 waits in every state but OVER, which is put last. Edges are in the order
    of discovery; one to where it came from is a self-loop."""
    empty = initial(PD)
    waits = empty.with_engine(empty.engines[0].with_request(Request("r0", WAITING, "ab", 2, 1)))
    number = {0: 0}
    reached = Reached([waits], [None], [0])
    for origin, target, event in edges:
        if target not in number:
            number[target] = len(number)
            state = empty if target == OVER else waits
            reached.states.append(state._replace(failures=number[target]))
            reached.parents.append((number[origin], event))
        if origin == target:
            reached.self_loops.append((number[origin], event))
        else:
            reached.edges.append((number[origin], number[target], event))
    return reached


FAIR = {
    "a step that changes nothing": ([(0, 0, schedule)], (schedule,)),
    "a step that changes nothing, and a way out nobody must take": (
        [(0, 0, schedule), (0, OVER, abort)],
        (schedule,),
    ),
    "two engines in vain": ([(0, 0, other), (0, 0, schedule)], (other, schedule)),
    "steps that lead round": ([(0, 1, schedule), (1, 0, complete)], (schedule, complete)),
    "round, and the end of a read is impossible on the way": (
        [(0, 0, schedule), (0, 1, evict), (1, 1, schedule), (1, 0, reset), (0, OVER, done)],
        (evict, schedule, reset),
    ),
}


@pytest.mark.parametrize(("edges", "cycle"), FAIR.values(), ids=list(FAIR))
def test_a_fair_round_is_found(edges, cycle) -> None:
    reached = graph(*edges)
    assert lasso(PD, reached) == Lasso((), cycle, reached.states[0], GOES_ROUND)


def test_a_deadlock_and_a_rest_have_no_round() -> None:
    for edges, kind in (([], DEADLOCK), ([(1, OVER, abort)], RESTS)):
        reached = graph((0, 1, schedule), *edges)
        assert lasso(PD, reached) == Lasso((schedule,), (), reached.states[1], kind)


def found_in(cluster: Cluster, states_max: int = 10_000) -> Lasso:
    """The lasso of a cluster, replayed: it leads to where somebody waits, and back to there."""
    found = lasso(cluster, search(cluster, [], states_max))
    assert found is not None
    machine = ModelMachine(cluster)
    for event in found.prefix:
        machine.take(event)
    start = machine.state
    assert start == found.state
    assert termination.unfinished(start)
    possible = []
    for event in found.cycle:
        possible.append({duty(cluster, e) for e in machine.stimuli()})
        assert not termination.over(machine.take(event).after)
    assert machine.state == start
    never_done = {duty(cluster, e) for e in found.cycle} ^ set().union(*possible)
    assert all(d is None or any(d not in p for p in possible) for d in never_done)
    return found


FAULTY = {
    ("align_split_during_load", "pd"): (6, GOES_ROUND, 1),
    ("loads_take_the_last_blocks", "pd-tight"): (12, GOES_ROUND, 1),
    ("align_split_refuses_external", "pd"): (7, DEADLOCK, 0),
    ("longer_list_dies_across_ratios", "pd-ratio-decode"): (5, DEADLOCK, 0),
}
"""Length of the prefix, kind and length of the round."""


@pytest.mark.parametrize(("fault", "name"), FAULTY)
def test_faults_that_stop_progress_have_a_lasso(fault: str, name: str) -> None:
    found = under([FAULTS[fault]], found_in, CLUSTERS[name])
    assert (len(found.prefix), found.kind, len(found.cycle)) == FAULTY[fault, name]


def out_of_reach(reached: Reached) -> bool:
    """Whether there is a state from which no run leads to the end."""
    backward = nx.DiGraph((target, origin) for origin, target, _ in reached.edges)
    backward.add_nodes_from(range(len(reached.states)))
    ends = [i for i, state in enumerate(reached.states) if termination.over(state)]
    seen = set(ends).union(*(nx.descendants(backward, end) for end in ends))
    return len(seen) < len(reached.states)


@pytest.mark.parametrize("fault", others_nightly(FAULTS, TENTH))
def test_a_state_from_which_the_end_is_unreachable_has_a_lasso(fault: str) -> None:
    cluster = CLUSTERS[FAULTS[fault].cluster]
    reached = under([FAULTS[fault]], search, cluster, [], 20_000)
    assert not reached.cut
    if out_of_reach(reached):
        assert lasso(cluster, reached) is not None


@pytest.mark.parametrize("name", ["pd-aborting", "pd-losing"])
def test_an_abort_is_no_excuse(name: str) -> None:
    """The user could end the wait by giving up; so the end can be reached, and never comes."""
    faults = [FAULTS["align_split_during_load"]]
    assert not out_of_reach(under(faults, search, CLUSTERS[name], [], 10_000))
    assert under(faults, found_in, CLUSTERS[name]).kind == GOES_ROUND


def uncached(name: str, *jobs: Job) -> Cluster:
    """A preset with small pools and chunks, no prefix caching, and these jobs."""
    cluster = CLUSTERS[name]
    engines = tuple(
        replace(e, num_blocks=size, chunk_tokens=4, prefix_caching=False)
        for e, size in zip(cluster.engines, (5, 9), strict=False)
    )
    return replace(cluster, engines=engines, jobs=jobs)


def test_a_request_that_preempts_itself_for_ever_is_found() -> None:
    queued = [FAULTS["impossible_fit_waits"]]
    cluster = uncached("full", Job("r0", "abcdefghij"))
    found = under(queued, found_in, cluster, 200)
    assert found.kind == GOES_ROUND
    choices = [c for e in found.cycle if isinstance(e, Schedule) for c in e.chose or ()]
    assert any(isinstance(c, Preempt) for c in choices)
    first = waits(cluster, found.state, HangContext(found.cycle))[0]
    assert (
        first.sentence == "r0 on E (preempted) is scheduled each time, and loses its progress again"
    )
