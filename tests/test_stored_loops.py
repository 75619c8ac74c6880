"""The loop of an engine core with a store: clients meet a real connector and real bytes, which the
checks of connectors and of loops judge."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice

import pytest
from msgspec.structs import replace

pytest.importorskip("vllm")

from kvproof.gate.side import around_scheduler
from kvproof.gate.side.around_scheduler import broken
from kvproof.live.connectors import observed
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.facts.connectors import counted
from kvproof.model.facts.loop import Played
from kvproof.model.plans.connector import Copies
from kvproof.model.plans.engine import EnginePlan, given, lines
from kvproof.model.plans.messages import Send
from kvproof.model.plans.random_engines import COUNTED, GIVEN, STORES, random_engine
from tests.in_vllm import MAMBA, SCHEDULER, Mistake, around, instead, line, nothing

pytestmark = pytest.mark.live


IN_0_32 = {"idle_engine_has_published", "events_have_tokens_of_their_hash"}
"""What loops with a store of the installed release break: aibrix#2287, and
`findings/stored_event_has_other_tokens`."""


def plan_of(store: str, seed: int) -> EnginePlan:
    """A random plan of an engine of given sizes with this store."""
    return random_engine(seed, GIVEN, store)


def planned_with(store: str) -> Iterator[EnginePlan]:
    """Random plans of engines with this store, whose KV caches their own start-up plans."""
    drawn = (random_engine(seed, {**COUNTED, "messages": True}, store) for seed in count())
    return (plan for plan in drawn if plan.store and plan.hybrid)


def play(plan: EnginePlan) -> Played:
    """What comes of a plan whose engine starts."""
    seen = around_scheduler.taken(plan)[-1]
    assert isinstance(seen, Played), seen
    return seen


@pytest.mark.parametrize("store", STORES)
def test_a_store_behind_the_loop_keeps_the_rules(store: str) -> None:
    judged: Counter[str] = Counter()
    for seed in range(17):
        seen = play(plan_of(store, seed))
        breaks = {each.invariant for each in broken(seen)}
        assert breaks <= IN_0_32, lines(seen.plan)
        judged += counted(seen.store)
    assert min(judged[each] for each in ("loads", "promised tokens", "reads")) > 0


@pytest.mark.parametrize("store", STORES)
def test_a_store_on_planned_sizes_keeps_the_rules(store: str) -> None:
    judged: Counter[str] = Counter()
    for plan in islice(planned_with(store), 4):
        for seen in around_scheduler.taken(plan):
            breaks = {each.invariant for each in broken(seen)}
            assert breaks <= IN_0_32, lines(plan)
            judged += counted(seen.store) if isinstance(seen, Played) else Counter()
    assert judged["reads"] > 0


MISTAKES = {
    "the connector is not told that a request has ended": Mistake(
        instead(f"{SCHEDULER}._connector_finished", lambda *_: (False, None)),
        *("engine_survives", "offloading-files"),
    ),
    "events of the store wait for those of the engine": Mistake(
        line(
            f"{SCHEDULER}.update_from_output",
            "connector_events = self.connector.take_events()",
            "connector_events = self.connector.take_events() if events else None",
        ),
        *("idle_engine_has_published", "offloading-small"),
    ),
    "blocks that were to be freed later stay": Mistake(
        nothing(f"{SCHEDULER}._drain_deferred_frees"), *("all_blocks_return", "simple-cpu")
    ),
}
"""A store shows each."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = MISTAKES[mistake]
    play(plan_of(planted.shown_by, 0))
    planted.patch(monkeypatch)
    assert breaking(planted.finds, (plan_of(planted.shown_by, seed) for seed in range(60)))


def breaking(check: str, plans: Iterable[EnginePlan]) -> EnginePlan:
    """The first of these plans that breaks a check."""
    found: Counter[str] = Counter()
    for plan in plans:
        for seen in around_scheduler.taken(plan):
            found.update(each.invariant for each in broken(seen))
        if check in found:
            return plan
    pytest.fail(f"they do not break {check}, but {found}")


def test_a_mistake_about_states_is_found_on_planned_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit takes the state before a block for that after it. No loop of given sizes has states,
    and no start-up alone has bytes."""
    earlier = "block_hashes[max(i - 1, 0)], kv_cache_group_ids"
    place = f"{MAMBA}.find_longest_cache_hit"
    line(place, "block_hashes[i], kv_cache_group_ids", earlier)(monkeypatch)
    with_states = (plan for plan in planned_with("simple-cpu") if "mamba" in plan.kinds)
    assert breaking("request_reads_its_own_tokens", islice(with_states, 20))


def test_what_kills_the_front_is_told() -> None:
    """A connector that offers fewer than no tokens: vLLM's logger refuses to count them."""
    played = (play(plan_of("example", seed)) for seed in range(30))
    died = next(seen.died for seen in played if seen.died)
    assert died.place == "ValueError in inc"


def test_where_the_kit_fails_at_a_wrong_answer_the_answer_is_the_break() -> None:
    """Its workers have no block for what the scheduler computes after such an offer."""
    sent = (  # after so many moments, shared and own tokens, and tokens to answer
        *((1, 7, 8, 1), (1, 1, 0, 5), (8, 0, 1, 1), (0, 4, 0, 5), (11, 0, 1, 3)),
        *((8, 9, 0, 1), (0, 0, 9, 2), (5, 4, 4, 2), (1, 4, 5, 1)),
    )
    actions = (Send(after, f"r{n}", *sizes) for n, (after, *sizes) in enumerate(sent))
    plan = given(tuple(actions), more=8, chunk_tokens=4, prefix_caching=False)
    seen = play(replace(plan, store="example", copies=Copies(steps=3)))
    assert (seen.died, seen.waits) == (None, ())
    assert not around_scheduler._record([seen], (), whole=True).whole
    assert "matched_tokens_can_be_loaded" in {each.invariant for each in broken(seen)}


def test_a_mistake_of_the_kit_after_a_wrong_answer_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A load takes its blocks in another order. The kit goes on after it, and fails by itself when
    the loop ends."""
    place = "vllm.v1.kv_offload.cpu.manager:CPUOffloadingManager.prepare_load"
    around(place, lambda right, self, keys, *more: right(self, [*keys][::-1], *more))(monkeypatch)
    plans = (plan_of("offloading-small", seed) for seed in range(60))
    plan = breaking("promised_tokens_are_loaded", plans)
    monkeypatch.setattr(observed.ObservedEngine, "note_owed", lambda: None)
    with pytest.raises(AdapterDrift, match="The adapter does not fit: TypeError"):
        around_scheduler.taken(plan)


def test_a_store_that_is_not_driven_is_refused() -> None:
    plan = plan_of("simple-cpu", 1)
    for other in (
        replace(plan, store="nixl-pull"),
        replace(plan, store="nobody"),
        replace(plan, connected=True),
        replace(plan, drafts=1),
    ):
        with pytest.raises(UsageError, match=r"^An engine core is not driven .*\. Use layers of"):
            around_scheduler.taken(other)
