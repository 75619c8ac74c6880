"""The packed search is the plain one, and its gate says so when it is not."""

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Job
from kvproof.model.faults.registry import FAULTS
from kvproof.model.ghost_state import EMPTY, Served
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference import apply as model
from kvproof.model.state import Engine
from kvproof.strategies.explorer.collapse import Collapse
from kvproof.strategies.explorer.exhaustive import search
from kvproof.strategies.explorer.local_steps import Absent, LocalSteps, Unseen
from kvproof.strategies.explorer.packed import PackedSearch
from tests.cover import BROKEN, PRESETS, others_slow
from tests.planted import under
from tests.search_gates import packed_differs

pytestmark = pytest.mark.exhaustive

ALL = list(INVARIANTS.values())
PD = CLUSTERS["pd"]
LARGE = ("pd-evicting", "pd-default", "pd-remnant")


@pytest.mark.parametrize("name", others_slow((n for n in CLUSTERS if n not in LARGE), PRESETS))
def test_packed_is_plain(name: str) -> None:
    assert packed_differs(CLUSTERS[name], ALL) is None


@pytest.mark.parametrize("name", others_slow(FAULTS, BROKEN))
def test_packed_finds_a_fault_as_plain_does(name: str) -> None:
    fault = FAULTS[name]
    assert under([fault], packed_differs, CLUSTERS[fault.cluster], ALL) is None


def test_a_state_is_what_it_was_before_packing() -> None:
    reached = search(CLUSTERS["pd-failing"], [], 10_000)
    collapse = Collapse(CLUSTERS["pd-failing"])
    packed = [collapse.pack(collapse.parts(state)) for state in reached.states]
    assert [collapse.state(collapse.unpack(p)) for p in packed] == reached.states
    assert len(set(packed)) == len(reached.states)
    assert len(collapse.components) < len(reached.states)


def test_equal_components_are_one_object() -> None:
    reached = search(PD, [], 10_000)
    collapse = Collapse(PD)
    seen: dict[Engine, int] = {}
    for state in reached.states:
        for engine in collapse.state(collapse.parts(state)).engines:
            assert seen.setdefault(engine, id(engine)) == id(engine)


def test_equal_tuples_of_two_types_stay_two_objects() -> None:
    collapse = Collapse(PD)
    pairs: list[object] = [("r1", 0), Served("r1", 0), ("r1", False), (("r1", 0),)]
    kept = [collapse._share((pair, ("x",))) for pair in (*pairs, *pairs)]
    assert [type(one[0]) for one in kept[:2]] == [tuple, Served]
    assert len({id(one) for one in kept}) == len(pairs)


def test_a_prompt_like_a_name_is_searched() -> None:
    jobs = (Job("r0", "abcdefg", 2), Job("r1", "r1"))
    search = PackedSearch(CLUSTERS["partial-tight"].carrying(*jobs), ALL)
    while not search.over and search.reached.expanded < 30:
        search.expand()
    assert search.reached.finding is None


def test_a_codec_that_forgets_something_turns_the_gate_red(monkeypatch: pytest.MonkeyPatch) -> None:
    number = Collapse.number

    def forgetful(self: Collapse, component: object) -> int:
        if isinstance(component, Engine):
            component = component._replace(ghost=EMPTY)
        return number(self, component)

    monkeypatch.setattr(Collapse, "number", forgetful)
    assert packed_differs(CLUSTERS["pd-hitting"], []) is not None


def test_a_codec_that_mixes_two_components_up_turns_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpack = Collapse.unpack
    monkeypatch.setattr(Collapse, "unpack", lambda self, p: (0, *unpack(self, p)[1:]))
    assert packed_differs(PD, ALL) is not None


def test_a_step_remembered_for_too_much_turns_the_gate_red(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: dict[object, object] = {}

    def careless(self: LocalSteps, parts, event, place: int):
        # What is between the engines is left out of what the step depends on.
        key = (event, parts[place])
        if key not in remembered:
            remembered[key] = self._compute(parts, event, place)
        return remembered[key]

    monkeypatch.setattr(LocalSteps, "_local", careless)
    assert packed_differs(CLUSTERS["pd-failing"], []) is not None


@pytest.mark.parametrize(
    "question",
    [
        lambda a: a.blocks,
        lambda a: a == a,
        lambda a: list(a),
        lambda a: a[0],
        lambda a: {a},
        lambda a: bool(a),
        lambda a: len(a),
        lambda a: getattr(a, "dead", None),
    ],
)
def test_an_absent_engine_answers_nothing_but_its_name(question) -> None:
    absent = Absent("P")
    assert absent.name == "P"
    with pytest.raises(Unseen):
        question(absent)


def test_a_step_that_asks_for_the_other_engine_is_taken_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = model.apply

    def curious(cluster, state, event):
        assert [engine.blocks for engine in state.engines]
        return apply(cluster, state, event)

    monkeypatch.setattr(model, "apply", curious)
    packed = PackedSearch(PD, ALL)
    while not packed.over:
        packed.expand()
    assert set(packed.steps._known.values()) == {None}
    assert packed_differs(PD, ALL) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.strategies.explorer.local_steps.KEPT_MAX", 10)
    packed = PackedSearch(PD, ALL)
    while not packed.over:
        packed.expand()
        assert len(packed.steps._known) <= 10
    assert len(packed.reached.packed) == 267
