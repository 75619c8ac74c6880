"""Options that deployments set: what the guards say, and what is refused."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.errors import UsageError
from kvproof.model.events import Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.step import Step
from tests.planted import under

FULL = (Group("full", 2),)
JOBS = (Job("r0", "abcdefgh"), Job("r1", "uvwxyz"))


def first_step(jobs: tuple[Job, ...] = JOBS, **options: object) -> Step:
    """The first step of an engine with these options, to which all jobs have come."""
    engine = EngineConfig("E", FULL, **{"num_blocks": 6, "chunk_tokens": 6, **options})  # type: ignore[arg-type]
    machine = ModelMachine(Cluster("c", (engine,), jobs))
    for job in jobs:
        machine.take(Submit("E", job.name))
    return machine.take(Schedule("E"))


def test_the_guard_sees_a_longer_chunk_beside_others() -> None:
    ignores = {"reference.scheduling.chunks:most_beside_others": lambda _limit, budget: budget}
    step = under(ignores, first_step, long_prefill_tokens=4)
    cluster = Cluster(
        "c", (EngineConfig("E", FULL, 6, chunk_tokens=6, long_prefill_tokens=4),), JOBS
    )
    found = broken(cluster, step, [CHECKS["step_keeps_its_limits"]])
    assert [each.sentences[-1] for each in found] == ["r0 gets 6"]


def test_which_engine_receives() -> None:
    for name, receives in ("pd-async", (True, True)), ("pd-roles", (False, True)):
        assert tuple(e.receives for e in CLUSTERS[name].engines) == receives
    assert CLUSTERS["store"].prefill.receives
    assert not CLUSTERS["full"].prefill.receives


def test_a_pair_for_follow_up_turns_is_not_one_way() -> None:
    p, d = (
        EngineConfig(n, FULL, role=r, one_way=True) for n, r in (("P", "prefill"), ("D", "decode"))
    )  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="P, which then loads from D, must be kv_both"):
        refuse_unmodelled(Cluster("c", (p, d), follow_up_turns=True))
