"""What vLLM is free to choose is open: a vLLM that chooses otherwise stays green."""

import functools
from typing import Any, NamedTuple

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.live.contract_check import check
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.needs import Need
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.cover import others_nightly
from tests.in_vllm import POOL, SCHEDULER, Change, around, instead
from tests.watching import watched

pytestmark = pytest.mark.live

EXAMPLES = 24


class Policy(NamedTuple):
    """A harmless change of vLLM, and presets in which it makes a difference."""

    change: Change
    clusters: tuple[str, ...]


def free_queue_reversed(right: Any, pool: Any, count: int) -> Any:
    """The block that was freed last is given out first, cached or not."""
    queue = pool.free_block_queue
    blocks = queue.get_all_free_blocks()[::-1]
    for block in blocks:
        queue.remove(block)
    queue.append_n(blocks)
    return right(pool, count)


def freed_head_first(right: Any, pool: Any, blocks: Any) -> Any:
    """The first blocks of a request are freed, and evicted, before its last."""
    return right(pool, list(blocks)[::-1])


def another_victim(right: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Who runs is served in turns, so that another one is last, and is preempted."""
    if len(scheduler.running) > 1:
        scheduler.running.append(scheduler.running.pop(0))
    return right(scheduler, *args, **kwargs)


def chunks_of_three(right: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """A prompt is computed three tokens at a time."""
    scheduler.scheduler_config.long_prefill_token_threshold = 3
    return right(scheduler, *args, **kwargs)


def last_come_first_served(queue: Any, request: Any) -> None:
    """Who came last is admitted first."""
    queue.appendleft(request)


POLICIES = {
    "free_queue_reversed": Policy(
        around(f"{POOL}.get_new_blocks", free_queue_reversed),
        ("full", "hybrid", "pd", "pd-window", "sessions"),
    ),
    "freed_head_first": Policy(
        around(f"{POOL}.free_blocks", freed_head_first), ("full", "window", "async")
    ),
    "another_victim": Policy(
        around(f"{SCHEDULER}.schedule", another_victim),
        ("full", "async-preempting", "hybrid", "pd-async"),
    ),
    "chunks_of_three": Policy(
        around(f"{SCHEDULER}.schedule", chunks_of_three), ("full", "window", "pd-full")
    ),
    "last_come_first_served": Policy(
        instead(
            "vllm.v1.core.sched.request_queue:FCFSRequestQueue.add_request", last_come_first_served
        ),
        ("full", "hybrid", "pd-full"),
    ),
}


def driven(name: str) -> list[list[Event]]:
    """The events of a search on live vLLM that finds nothing, with what vLLM chose."""
    machines: list[Watched] = []

    def make(cluster: Cluster) -> Watched:
        machines.append(watched(cluster))
        return machines[-1]

    # Another order of reuse is permitted; two invariants report that it loses performance.
    asked = [each for each in CHECKS.values() if Need.REUSE_ORDER not in each.needs]
    outcome = sample(CLUSTERS[name], make, asked, examples=EXAMPLES, steps=30, shrink=False)
    assert outcome.verdict is Verdict.SAMPLED, (name, outcome.finding)
    return [machine.taken for machine in machines]


released = functools.cache(driven)


@pytest.mark.parametrize("name", others_nightly(POLICIES, ["last_come_first_served"]))
def test_another_policy_is_green(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES[name]
    as_released = [released(cluster) for cluster in policy.clusters]
    check()  # before: what is put in the place of a method need not name its parameters
    policy.change(monkeypatch)
    assert [driven(cluster) for cluster in policy.clusters] != as_released
