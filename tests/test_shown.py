"""What two sides of a comparison show of a run: equal where a user sees the same, and different
where one value is another."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kvproof.gate.difference.record import COUNTED, COUNTER, Pair, Record
from kvproof.gate.difference.workload import Engine, Episodes, Play, Plays
from kvproof.gate.side import around_scheduler
from kvproof.model.facts.loop import Did, Played
from kvproof.model.facts.startup import LoneRequest, Startup
from kvproof.model.plans.engine import EnginePlan, given
from kvproof.model.plans.messages import Send
from kvproof.model.plans.random_engines import random_engine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death

pytest.importorskip("vllm")

from kvproof.gate.difference.judged import driven
from kvproof.gate.side import plans as side_plans
from kvproof.live import adapt
from kvproof.live.machine import LiveMachine
from kvproof.live.observer import shown
from kvproof.model.plans.connector import ConnectorPlan, Drain, RunSteps, SubmitRequest
from tests.connectors.played import engine_of
from tests.in_vllm import POOL, SCHEDULER, Change, around, instead, line

pytestmark = pytest.mark.live


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Answer:
    name: str
    tokens: list[int]
    start_time: float = 0.0
    number: int = 0
    more: list[int] = field(default_factory=list)


@dataclass
class Renamed:
    request: str
    _ids: Any
    began_time: float
    count: int
    further: tuple[int, ...] = ()
    new: dict[str, int] | None = None


class Sent(msgspec.Struct, tag=True):
    block: int


class Removed(msgspec.Struct, tag=True):
    block: int


ONE = Answer("r0", [1, 2], 4.0, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ONE, Renamed("r0", deque([1, 2]), 5.0, 3)),
        ({"b": 1, "a": 2}, OrderedDict(a=2, b=1)),
        ({"r1", "r0"}, frozenset({"r0", "r1"})),
        ((1, 2), [1, 2]),
        ("/tmp/one/x", "/tmp/two/x"),
        ("r0-0123abcd", "r0-4567cdef"),
        (1 << 60, 1 << 61),
        (b"one", b"two"),
        (1234.5, 5432.1),
        ({"lookup_seconds": 0.1}, {"lookup_seconds": 0.2}),
    ],
)
def test_names_containers_hashes_folders_and_times_are_not_shown(one: Any, other: Any) -> None:
    assert shown.plain(one) == shown.plain(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ONE, Answer("r1", [1, 2], 4.0, 3)),
        (ONE, Answer("r0", [2, 1], 4.0, 3)),
        (ONE, Answer("r0", [1, 2], 4.0, 4)),
        (ONE, Answer("r0", [1, 2], 4.0, 3, [0])),
        (Answer("r0", [], number=3), Answer("r0", [3])),
        ({"a": 1}, {"a": 2}),
        ({"r0"}, {"r0", "r1"}),
        (0.25, 0.5),
        (Color.RED, Color.BLUE),
        (Sent(1), Removed(1)),
        (True, None),
        ("r0", "r1"),
    ],
)
def test_each_other_value_is_shown(one: Any, other: Any) -> None:
    assert shown.plain(one) != shown.plain(other)


def test_what_lies_in_itself_ends() -> None:
    thing: list[Any] = [1]
    thing.append(thing)
    assert shown.plain(thing) == [1, shown.UNNAMED]


def of_cluster(name: str = "full") -> Record:
    return driven(Episodes("", CLUSTERS[name], 3, 1, 25), LiveMachine).records[0]


PLAN = ConnectorPlan(
    CLUSTERS["full"].engines[0], (SubmitRequest(0, 6), SubmitRequest(1, 5), RunSteps(2))
)


def of_plan(connector: str = "offloading") -> Record:
    play = Play("a plan", connector, PLAN)
    return side_plans.driven(play).records[0]


def of_engine(plan: EnginePlan) -> Record:
    return side_plans.driven(Engine("an engine", plan)).records[0]


def of_loop() -> Record:
    return of_engine(given((Send(0, "r0", 2, 6, 3), Send(2, "r1", 2, 4, 2))))


def of_start() -> Record:
    return of_engine(random_engine(0, {"given": False}))


KINDS = (of_cluster, of_plan, of_loop, of_start)
Made = Callable[[], Record]


def changed(method: str, change: Callable[[Any, Any], None]) -> Change:
    """A method of the scheduler that changes its answer, or something of its own."""

    def answers(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = right(self, *args, **kwargs)
        change(self, answer)
        return answer

    return around(f"{SCHEDULER}.{method}", answers)


def private_cache(scheduler: Any, _answer: Any) -> None:
    scheduler._kvproof_cache = {"r0": len(scheduler.requests)}


def statistic(_scheduler: Any, answer: Any) -> None:
    if answer is not None:
        answer.num_running_reqs += 1


def step_field(_scheduler: Any, answer: Any) -> None:
    answer.num_spec_tokens_to_schedule += 1


def output_field(_scheduler: Any, answer: Any) -> None:
    for outputs in answer.values():
        for each in outputs.outputs:
            each.num_nans_in_logits += 1


@pytest.fixture(scope="module")
def right() -> dict[Made, Record]:
    return {made: made() for made in KINDS}


@pytest.mark.parametrize("made", KINDS)
def test_the_same_run_shows_the_same_with_a_further_private_cache(
    right: dict[Made, Record], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed("schedule", private_cache)(monkeypatch)
    assert len(right[made].marks) > 3
    assert right[made].whole
    assert made() == right[made]


EFFECTS = {
    "a statistic": changed("make_stats", statistic),
    "a field of a step": changed("schedule", step_field),
    "a field of an output": changed("update_from_output", output_field),
    "another order of the free queue": around(
        f"{POOL}.free_blocks", lambda right, self, blocks, *more: right(self, blocks[::-1], *more)
    ),
    "another answer whether there is work": instead(f"{SCHEDULER}.has_requests", lambda _: False),
}


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("made", KINDS)
def test_one_other_value_or_order_is_an_effect(
    right: dict[Made, Record], made: Made, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    EFFECTS[effect](monkeypatch)
    assert Pair(right[made], made()).parts_at is not None


START = Startup(given(), None, num_blocks=7, marks=(1,), run=LoneRequest(5, True, 3, 5))
LOOP = Played(given(), marks=(1, 2), did=Did(1, 2, 3), counts=(("steps", 4),))


def changes() -> Iterator[tuple[Any, Any]]:
    yield START, START._replace(num_blocks=8)
    yield START, START._replace(marks=(2,))
    yield START, START._replace(refused="too little memory")
    yield START, START._replace(died=Death("ValueError", "here", ""))
    yield START, START._replace(run=LoneRequest(5, True, 4, 5))
    yield START, START._replace(run=LoneRequest(5, True, 3, 5, marks=(1,)))
    yield LOOP, LOOP._replace(marks=(1, 3))
    yield LOOP, LOOP._replace(did=Did(1, 2, 4))
    yield LOOP, LOOP._replace(exited=True)
    yield LOOP, LOOP._replace(died=Death("ValueError", "here", ""))


@pytest.mark.parametrize(("one", "other"), [*changes()])
def test_one_value_of_a_start_or_a_loop_is_an_effect(one: Any, other: Any) -> None:
    base, head = (around_scheduler._record([each], [], whole=True) for each in (one, other))
    assert around_scheduler._record([one], [], whole=True) == base
    assert base.whole
    assert base.marks != head.marks


def test_what_is_counted_of_each_kind_of_run(right: dict[Made, Record]) -> None:
    assert all({*record.counts} <= {*COUNTED} for record in right.values())
    at_the_end = right[of_cluster].counts["free blocks at the end"]
    assert 0 < at_the_end < CLUSTERS["full"].engines[0].num_blocks
    assert right[of_cluster].counts["steps"] > 1
    assert right[of_plan].counts["last steps of requests"] > 0
    assert right[of_plan].counts["free blocks at the end"] == PLAN.engine.num_blocks - 1
    two_pools = of_plan("simple-cpu").counts["free blocks at the end"]
    assert two_pools > PLAN.engine.num_blocks - 1
    assert right[of_loop].counts["steps"] > 0
    assert right[of_start].counts["blocks of a started engine"] > 0


def test_blocks_that_are_held_after_their_requests_are_counted(right: dict[Made, Record]) -> None:
    """Where D reads them; an engine alone gives them back at once."""
    held = "blocks held after requests"
    assert right[of_cluster].counts[held] == right[of_loop].counts[held] == 0
    assert of_cluster("pd-default").counts[held] > 0
    assert of_plan("nixl-pull").counts[held] > 0


def test_an_event_counts_once_for_each_of_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tells of the last block of an evicted chunk alone tells less, in as many events."""
    families = [SubmitRequest(family, 24, 1) for family in range(3)]
    full = engine_of(num_blocks=48)
    plan = ConnectorPlan(full, tuple(each for one in families for each in (one, Drain())))
    play = Play("a plan", "offloading-events", plan)
    told = side_plans.driven(play).records[0].counts["events published"]
    place = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.events:OffloadingEventsTracker"
    old, new = "for h in meta.block_hashes", "for h in meta.block_hashes[-1:]"
    line(f"{place}._take_removed_event", old, new)(monkeypatch)
    assert 0 < side_plans.driven(play).records[0].counts["events published"] < told


def test_requests_that_end_together_are_stored_in_order() -> None:
    names = [f"r{number}" for number in range(40)]
    ended = SimpleNamespace(finished_req_ids={*names})
    adapt.order_ended(ended)
    assert [*ended.finished_req_ids] == sorted(names)
    for other in ([*names], dict.fromkeys(names), frozenset(names), None):
        assert adapt.in_order(other) is other


def test_what_only_some_connectors_have_is_counted() -> None:
    found: Counter[str] = Counter()
    for connector in ("images", "offloading-files"):
        for each in side_plans.driven(Plays("plans", connector, 0, 6)).records:
            found.update(each.counts)
    for name in (
        "encoder items computed",
        "blocks loaded from lower tiers",
        "events published",
    ):
        assert found[name] > 0, name


@pytest.mark.parametrize(("name", "worse"), COUNTED.items())
def test_one_more_of_a_quantity_is_worse_or_better(name: str, worse: str) -> None:
    counter = COUNTER.get(name, name)
    base, head = Record(counts={counter: 3}), Record(counts={counter: 4})
    assert Pair(base, head).worse(name) == (1 if worse == "more" else -1)
    others = [each for each in COUNTED if COUNTER.get(each, each) != counter]
    assert not any(Pair(base, head).worse(other) for other in others)
