"""A request that the pool may not hold waits for ever on live vLLM: the known finding."""

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Submit
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from tests.watching import Counting, watched

pytestmark = pytest.mark.live

ROUNDED_UP = (
    EngineConfig("E", (Group("full", 2), Group("window", 2, window=4)), 40, chunk_tokens=5),
    (Job("r0", "a" * 70),),
)
"""It would fit, but admission counts a window block more than is ever held."""

AFTER_A_HIT = (
    EngineConfig(
        "E",
        (Group("full", 2), Group("window", 2, window=3), Group("mamba", 2)),
        16,
        chunk_tokens=16,
    ),
    (Job("r0", "aaa"), Job("r1", "a" * 13)),
)
"""It would fit without the hit, which takes a cached state besides the one to be computed."""


def driven(engine: EngineConfig, jobs: tuple[Job, ...], without: str = "") -> Counting:
    machine = watched(Cluster("near", (engine,), oversized=True), without)
    run = Run(machine, [INVARIANTS["every_request_can_finish"]])
    run.add_jobs(jobs)
    for job in jobs:
        run.take(Submit("E", job.name))
        drain(run, "every_request_can_finish")
    return machine


@pytest.mark.parametrize("case", [ROUNDED_UP, AFTER_A_HIT], ids=["rounded up", "after a hit"])
def test_who_may_not_fit_is_passed_by_for_ever(case: tuple[EngineConfig, tuple[Job, ...]]) -> None:
    assert driven(*case).met == {"impossible_fit_waits": 1}
    with pytest.raises(Violated, match="every_request_can_finish"):
        driven(*case, without="impossible_fit_waits")
