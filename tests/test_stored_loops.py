"""The loop of an engine core with a store: clients meet a real connector and real bytes, which the
checks of connectors and of loops judge."""

from collections import Counter
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

pytest.importorskip("vllm")

from kvproof.gate.side import around_scheduler
from kvproof.gate.side.around_scheduler import broken
from kvproof.model.errors import UsageError
from kvproof.model.facts.connectors import counted
from kvproof.model.facts.loop import Played
from kvproof.model.plans.connector import Copies
from kvproof.model.plans.engine import EnginePlan, given, lines
from kvproof.model.plans.messages import LENGTH, Action, Cancel, Reset, Send
from kvproof.model.plans.random_messages import random_messages
from tests.in_vllm import SCHEDULER, Change, around, instead, nothing

pytestmark = pytest.mark.live

STORES = (
    "offloading-small",
    "offloading-files",
    "simple-cpu",
    "lmcache",
    "multi-offloading-simple",
)


def plan_of(store: str, seed: int) -> EnginePlan:
    """A random loop of an engine with a store. Its own cache is often reset before a request comes,
    so that the store loads; a reset that preempts requests ends loads of vLLM 0.32.0
    (`findings/forced_reset_ends_offloading`)."""
    r = Random(seed)
    actions: list[Action] = []
    for action in random_messages(r, LENGTH):
        if isinstance(action, Reset):
            action = replace(action, running=False)
        elif isinstance(action, Send) and r.random() < 0.5:
            actions.append(Reset(action.after))
            action = replace(action, after=r.choice((0, 0, 1, 3)))
        actions.append(action)
    plan = given(
        tuple(actions),
        r.choice((2, 4)),
        more=r.choice((0, 2, 8, 30)),
        window=r.choice((0, 0, 0, 5)),
        chunk_tokens=r.choice((4, 8, 16, 32)),
        overlaps=r.random() < 0.5,
        prefix_caching=r.random() < 0.8,
        recompute=r.random() < 0.5,
    )
    return replace(plan, store=store, copies=Copies(r.random() < 0.5, r.choice((0, 0, 1, 2, 3))))


def play(plan: EnginePlan) -> Played:
    """What comes of a plan whose engine starts."""
    seen = around_scheduler.taken(plan)[-1]
    assert isinstance(seen, Played), seen
    return seen


@pytest.mark.parametrize("store", STORES)
def test_a_store_behind_the_loop_keeps_the_rules(store: str) -> None:
    judged: Counter[str] = Counter()
    for seed in range(30):
        seen = play(plan_of(store, seed))
        breaks = {each.invariant for each in broken(seen)}
        assert breaks <= {"idle_engine_has_published"}, lines(seen.plan)  # aibrix#2287
        judged += counted(seen.store)
    assert min(judged[each] for each in ("loads", "promised tokens", "reads")) > 0


MISTAKES: dict[str, tuple[str, Change, str]] = {
    "a load takes its blocks in another order": (
        "offloading-small",
        around(
            "vllm.v1.kv_offload.cpu.manager:CPUOffloadingManager.prepare_load",
            lambda right, self, keys, *more: right(self, [*keys][::-1], *more),
        ),
        "promised_tokens_are_loaded",
    ),
    "the connector is not told that a request has ended": (
        "offloading-files",
        instead(f"{SCHEDULER}._connector_finished", lambda *_: (False, None)),
        "engine_survives",
    ),
    "blocks that were to be freed later stay": (
        "simple-cpu",
        nothing(f"{SCHEDULER}._drain_deferred_frees"),
        "all_blocks_return",
    ),
}
"""The store, what is changed in vLLM, and the check that finds it."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plant, check = MISTAKES[mistake]
    play(plan_of(store, 0))
    plant(monkeypatch)
    found: Counter[str] = Counter()
    for seed in range(60):
        found.update(each.invariant for each in broken(play(plan_of(store, seed))))
        if check in found:
            return
    pytest.fail(f"60 plans do not break {check}: {found}")


def test_what_kills_the_front_is_told() -> None:
    """A connector that offers fewer than no tokens: vLLM's logger refuses to count them."""
    seen = play(plan_of("example", 6))
    assert seen.died is not None
    assert seen.died.place == "ValueError in inc"


def test_where_the_kit_fails_at_a_wrong_answer_the_answer_is_the_break() -> None:
    """Its workers have no block for what the scheduler computes after such an offer."""
    seen = play(plan_of("example", 37))
    assert (seen.died, seen.waits) == (None, ())
    assert "matched_tokens_can_be_loaded" in {each.invariant for each in broken(seen)}


def test_a_store_that_is_not_driven_is_refused() -> None:
    plan = plan_of("simple-cpu", 0)
    for other in (
        replace(plan, store="nixl-pull"),
        replace(plan, store="nobody"),
        replace(plan, connected=True),
        replace(plan, counted_from="need"),
    ):
        with pytest.raises(UsageError, match=r"^An engine core is not driven .*\. Use given sizes"):
            around_scheduler.taken(other)


def test_a_plan_with_a_store_is_read_back() -> None:
    plan = plan_of("simple-cpu", 1)
    assert msgspec.convert(msgspec.to_builtins(plan), EnginePlan) == plan
    assert "the store simple-cpu" in lines(plan)[0]
    assert any(isinstance(each, Cancel | Send) for each in plan.actions)
