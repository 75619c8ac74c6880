"""The packed search is the plain one."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.events import Event, Evict
from kvproof.model.faults.registry import FAULTS
from kvproof.model.ghost_state import EMPTY
from kvproof.model.phases import Phase
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference import apply as model
from kvproof.model.state import Engine, State, Transfer
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer.collapse import (
    Collapse,
    HiddenEngine,
    HiddenEntries,
    Parts,
    Unseen,
)
from kvproof.strategies.explorer.local_steps import Branch, LocalStep, LocalSteps
from kvproof.strategies.explorer.packed import PackedSearch
from tests.breadth_first import search
from tests.cover import PRESETS, TENTH, others_nightly
from tests.planted import under

pytestmark = pytest.mark.exhaustive

ALL = list(INVARIANTS.values())
PD = CLUSTERS["pd"]


def assert_alike(cluster: Cluster, invariants: Sequence[Check]) -> None:
    """All states, edges and findings of the packed search of a scope are those of the plain search,
    and so are the checks that had nothing to judge. For scopes that the plain search can finish."""
    plain = search(cluster, invariants)
    packed = PackedSearch(cluster, invariants)
    while not packed.over:
        packed.expand()
    reached = packed.reached
    for name in ("states", "parents", "depths", "edges", "self_loops"):
        assert [*getattr(plain, name)] == [*getattr(reached, name)], name
    assert (plain.finding, plain.events) == (reached.finding, reached.events)
    assert plain.generated == reached.generated
    silent = [name for name in packed.asked if not plain.tally.judged[name]]
    when_packed = [name for name, times in packed.judged.items() if not times]
    assert plain.finding is not None or silent == when_packed


@pytest.mark.parametrize("name", others_nightly(CLUSTERS, PRESETS))
def test_the_packed_search_visits_the_same_states_as_a_plain_search(name: str) -> None:
    assert_alike(CLUSTERS[name], ALL)


@pytest.mark.parametrize("name", others_nightly(FAULTS, TENTH))
def test_the_packed_search_finds_a_fault_like_a_plain_search(name: str) -> None:
    fault = FAULTS[name]
    under([fault], assert_alike, CLUSTERS[fault.cluster], ALL)


def test_a_codec_that_forgets_something_turns_the_gate_red(monkeypatch: pytest.MonkeyPatch) -> None:
    number = Collapse.number

    def forgetful(self: Collapse, component: object) -> int:
        if isinstance(component, Engine):
            component = component._replace(ghost=EMPTY)
        return number(self, component)

    monkeypatch.setattr(Collapse, "number", forgetful)
    with pytest.raises(AssertionError):
        assert_alike(CLUSTERS["pd-hitting"], [])


def test_a_step_cached_for_too_many_states_turns_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = LocalSteps.take
    remembered: dict[object, LocalStep] = {}

    def careless(self: LocalSteps, parts: Parts, event: Event) -> LocalStep:
        # All but the first engine is left out of what the step depends on.
        key = (event, parts[0])
        if key not in remembered:
            remembered[key] = take(self, parts, event)
        return remembered[key]

    monkeypatch.setattr(LocalSteps, "take", careless)
    with pytest.raises(AssertionError):
        assert_alike(CLUSTERS["pd-failing"], [])


@pytest.mark.parametrize(
    "question",
    [
        lambda a: a.blocks,
        lambda a: a == a,
        lambda a: a != a,
        lambda a: list(a),
        lambda a: a[0],
        lambda a: {a},
        lambda a: bool(a),
        lambda a: len(a),
        lambda a: a + 1,
        lambda a: a < 1,
        lambda a: a - 1,
        lambda a: "E" in a,
        lambda a: getattr(a, "dead", None),
        str,
        repr,
        lambda a: f"{a}",
        lambda a: isinstance(a, Engine),
        lambda a: isinstance(a, Sequence),
    ],
)
def test_a_hidden_engine_answers_nothing_but_its_name(question) -> None:
    hidden = HiddenEngine(0, "P")
    assert hidden.name == "P"
    with pytest.raises(Unseen):
        question(hidden)


def test_a_hidden_transfer_is_sorted_among_others_and_says_nothing_of_itself() -> None:
    before, hidden, after = (
        Transfer("r0", Phase.OFFERED, 1, ()),
        HiddenEntries(3, "r1"),
        Transfer("r2", Phase.OFFERED, 1, ()),
    )
    state = State((), (before, hidden, after))  # type: ignore[arg-type]
    assert state.transfer("r2") is after
    assert sorted((after, hidden, before)) == [before, hidden, after]
    for question in (
        lambda: state.transfer("r1"),
        lambda: state.with_transfer("r1", None),
        lambda: state.phase("r1"),
        lambda: hidden.phase,
        lambda: hidden[1],
        lambda: hidden == Transfer("r1", Phase.OFFERED, 1, ()),
        lambda: sorted((hidden, Transfer("r1", Phase.OFFERED, 1, ()))),
        lambda: f"{hidden.request}",
        lambda: f"the transfer of {hidden.request!s}",
        lambda: "the transfer of " + hidden.request,
        lambda: isinstance(hidden, Transfer),
    ):
        with pytest.raises(Unseen):
            question()


def looked_at(steps: LocalSteps) -> Iterator[tuple[Event, frozenset[int]]]:
    """The events of cached steps, and the places of the parts that each step looked at."""

    def below(known: Branch | LocalStep, places: frozenset[int]) -> Iterator[frozenset[int]]:
        if isinstance(known, LocalStep):
            yield places
            return
        for each in known.known.values():
            yield from below(each, places | {known.place})

    for event, known in steps._known.items():
        for places in below(known, frozenset()):
            yield event, places


@pytest.mark.parametrize(
    "asks",
    [
        lambda engine: engine.blocks,
        lambda engine: f"{engine}",
        lambda engine: isinstance(engine, Engine),
    ],
)
def test_a_step_that_reads_the_other_engine_is_cached_for_both(
    asks: Callable[[Engine], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = model.apply

    def curious(cluster, state, event):
        assert all(asks(engine) for engine in state.engines)
        return apply(cluster, state, event)

    monkeypatch.setattr(model, "apply", curious)
    packed = PackedSearch(PD, ALL)
    while not packed.over:
        packed.expand()
    assert all(places >= {0, 1} for _, places in looked_at(packed.steps))
    assert_alike(PD, ALL)


def test_checks_look_at_no_more_than_the_step() -> None:
    packed = PackedSearch(CLUSTERS["pd-evicting"], (*CHECKS.values(), *conformance_checks()))
    while packed.expanded < 200:
        packed.expand()
    evictions = [places for event, places in looked_at(packed.steps) if isinstance(event, Evict)]
    assert set(map(len, evictions)) == {1}
