"""Plans for connectors: base and head play the same ones, whatever each of them accepts."""

from itertools import combinations, groupby, pairwise, permutations, product
from typing import Any

import msgspec
import pytest

from benchmarks.situations import SITUATIONS, of_connector
from kvproof.gate.difference.protocol import Accepts
from kvproof.gate.difference.record import Fatal, Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Plays, Workload
from kvproof.gate.search.comparison import PAST_DEATHS
from kvproof.gate.side.drawn_plans import ABANDONED, PAST, with_plans
from kvproof.live.connectors.layouts import layouts
from kvproof.model.plans.connector import ConnectorPlan, SubmitRequest
from tests.fake_sides import FakeSide, compared
from tests.two_machines import result

FIRST, SECOND = layouts(several=False)[:2]
THIRD = next(each for each in layouts(several=True) if "window" in each.traits)
SEVERAL = Accepts(layouts(several=True))
PLANS = Plays("plans", "offloading", 3, 12)


class Side(FakeSide):
    """A side whose connector accepts these groups. It keeps what it is driven with."""

    def __init__(self, *groups: ConnectorPlan, **more: Any) -> None:
        super().__init__(self._played)
        self.answer = Accepts(groups, **more)
        self.plans: list[tuple[ConnectorPlan, ...]] = []

    def accepts(self, _connector: str) -> Accepts:
        return self.answer

    def _played(self, workload: Workload) -> Result:
        assert isinstance(workload, Plays)
        assert workload.plans is not None
        self.plans.append(workload.plans)
        return result(workload.name)


def test_both_sides_play_the_same_plans_for_what_both_accept() -> None:
    base, head = Side(FIRST, SECOND), Side(SECOND, THIRD)
    with compared(base, head) as both:
        both.drive([PLANS])
    assert base.plans == head.plans
    assert len(base.plans[0]) == PLANS.episodes
    sizes = {group.block_size for plan in base.plans[0] for group in plan.engine.groups}
    assert sizes == {SECOND.engine.groups[0].block_size}
    assert both.one_sided == [
        f"plans for offloading with {FIRST.words}: base alone accepts these cache groups",
        f"plans for offloading with {THIRD.words}: head alone accepts these cache groups",
    ]


def test_what_head_fails_to_make_by_mistake_is_tried_on_both() -> None:
    base = Side(FIRST, SECOND)
    head = Side(FIRST, failing=(SECOND,))
    with compared(base, head) as both:
        both.drive([PLANS])
    assert base.plans == head.plans
    assert base.plans[0][0] == SECOND
    assert both.one_sided == []


def test_a_side_without_the_connector_is_not_asked_and_says_why() -> None:
    base, head = Side(FIRST), Side(reason="there is none")
    with compared(base, head) as both:
        both.drive([PLANS])
    assert (len(base.plans), len(head.plans)) == (1, 0)
    assert both.on_head["plans"].reason == "there is none"
    assert not both.on_base["plans"].reason


def kinds_of(plan: ConnectorPlan) -> list[str]:
    """The kinds of the actions of a plan, as a file names them."""
    return [str(each.__struct_config__.tag) for each in plan.actions]


class Dies(Side):
    """A side whose engine dies in the first action of this kind, in a function."""

    def __init__(self, kind: str, function: str) -> None:
        super().__init__(FIRST)
        self.kind, self.function = kind, function

    def _played(self, workload: Workload) -> Result:
        played = super()._played(workload)
        records = tuple(map(self._record, self.plans[-1]))
        return msgspec.structs.replace(played, records=records)

    def _record(self, plan: ConnectorPlan) -> Record:
        kinds = kinds_of(plan)
        if self.kind not in kinds:
            return Record(whole=True)
        at = kinds.index(self.kind) + 1
        return Record(fatal=Fatal(at, f"AssertionError in {self.function}", "assert tracker"))


@pytest.mark.parametrize(
    ("kind", "function", "goes_on"),
    [("Abort", "finish", True), ("Abort", "step", False), ("Step", "finish", False)],
)
def test_what_ends_both_engines_is_left_out_and_the_plan_goes_on(
    kind: str, function: str, goes_on: bool
) -> None:
    base, head = Dies(kind, "finish"), Dies(kind, function)
    with compared(base, head) as both:
        names = both.drive([PLANS])
    assert base.plans == head.plans
    assert names == [PLANS.name, *(PLANS.name + f", {PAST}" * n for n in range(1, len(names)))]
    assert (1 < len(names) <= 1 + PAST_DEATHS) is goes_on
    for earlier, later in pairwise(base.plans):
        dying = [plan for plan in earlier if kind in kinds_of(plan)]
        assert [len(plan.actions) - 1 for plan in dying] == [len(p.actions) for p in later]


def test_in_some_plans_a_client_goes_while_its_request_loads() -> None:
    """What came before a reset of the engine's own cache is loaded after it (vllm#43371)."""
    drawn = with_plans(PLANS, Accepts((FIRST,))).plans or ()
    gone = 0
    for plan in drawn[ABANDONED - 1 :: ABANDONED]:
        kinds = kinds_of(plan)
        after = kinds[kinds.index("Reset") :] if "Reset" in kinds else []
        if "Submit" in after:
            come = after[after.index("Submit") :]
            assert [kind for kind, _ in groupby(come)][:3] == ["Submit", "Step", "Abort"]
            gone += 1
    assert gone


def test_cache_groups_have_two_odd_values_together() -> None:
    """In the lists that were written by hand, 9 of these 37 pairs stood."""
    alone = "latent", "uneven layers", "shared layer", "uncached"
    kinds, more = ("window", "mamba"), ("drafter", "retention")
    wanted = {
        *combinations((*alone, *more, "three"), 2),
        *product((*alone, *more), kinds),
        *product(alone, ["local"]),
    }
    # No vLLM of today takes groups whose Mamba layers keep each state.
    plans = [each for each in layouts(several=True) if not each.every_state]
    assert wanted - {pair for each in plans for pair in permutations(each.traits, 2)} == set()


def test_each_plan_can_be_read_by_who_plays_it() -> None:
    """Base and head get the plans as text. Prompts parted behind the end of the longest one, where
    windows were wide."""
    wide = max(layouts(several=True), key=lambda each: max(g.window for g in each.engine.groups))
    drawn = with_plans(Plays("plans", "offloading", 0, 60), Accepts((wide,))).plans or ()
    read = msgspec.json.decode(msgspec.json.encode(drawn), type=tuple[ConnectorPlan, ...])
    assert read == drawn


def test_the_plans_of_a_search_are_no_look_alikes() -> None:
    """Hypothesis repeats parts of earlier plans: of 100, 60 differed in their engine or traffic."""
    plans = with_plans(Plays("plans", "offloading", 3, 100), SEVERAL).plans or ()
    assert len(plans) == 100
    assert len({(plan.engine.groups, _traffic(plan)) for plan in plans}) >= 90


def test_what_defects_needed_is_drawn_often() -> None:
    """Each of these situations came up in at most one plan of 50, and nothing else shows what some
    defects of vLLM did."""
    plans = with_plans(Plays("plans", "offloading", 3, 100), SEVERAL).plans or ()
    seen = [of_connector("offloading", plan) for plan in plans]
    wanted = (
        "an answer is longer than a block",
        "run to idle under a pause",
        "urgent after patient",
        "three siblings before one step",
        "prompts part at the edge of a block",
        "an abort at once after a request",
    )
    shares = {what: sum(map(SITUATIONS[what], seen)) for what in wanted}
    assert {what for what, share in shares.items() if share < 5} == set(), shares


def _traffic(plan: ConnectorPlan) -> tuple[tuple[str, int], ...]:
    requests = (each for each in plan.actions if isinstance(each, SubmitRequest))
    return tuple((each.prompt, each.max_tokens) for each in requests)
