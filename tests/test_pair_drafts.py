"""Speculative decoding on a prefill and a decode node: what is transferred, and what is not."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.events import Complete, Schedule, Submit, TransferDone
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.transfers import block_pairs
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.planted import under

EAGLE = Group("full", 2, eagle=True)


def offered(cluster: Cluster) -> ModelMachine:
    """A machine whose P has finished its first request, which D is to load."""
    machine = ModelMachine(cluster)
    machine.take(Submit("P", "r0"))
    while not machine.state.transfers:
        machine.take(machine.stimuli()[0] if machine.state.engine("P").step else Schedule("P"))
    machine.take(Submit("D", "r0"))
    machine.take(Schedule("D"))
    return machine


def roomy(cluster: Cluster) -> tuple[EngineConfig, ...]:
    return tuple(replace(e, num_blocks=12) for e in cluster.engines)


def test_a_step_that_is_kept_free_beside_a_load_makes_a_prompt_that_fits_wait() -> None:
    fault = FAULTS["load_keeps_room_for_drafts"]
    cluster = CLUSTERS[fault.cluster]
    assert under([fault], explore, cluster).finding.invariant == fault.breaks[0]
    wider = replace(cluster, engines=roomy(cluster))
    assert under([fault], explore, wider).verdict is Verdict.EXHAUSTED


def test_what_is_cut_off_an_answer_may_count_for_what_is_left_behind() -> None:
    """Whether it counts decides which states D frees last. The spec leaves it open."""
    machine = ModelMachine(CLUSTERS["pd-drafts"].carrying(Job("r0", "a", 2)))
    machine.state = offered(machine.cluster).state
    for event in (TransferDone("r0"), Schedule("D"), Complete("D"), Schedule("D")):
        machine.take(event)
    step = machine.take(Complete("D", {"r0": 1}))
    p, d = step.after.engines
    assert d.free[-2:] == (2, 1)
    otherwise = d._replace(free=(*d.free[:-2], 1, 2))
    other = step._replace(after=step.after._replace(engines=(p, otherwise)))
    assert not [*broken(machine.cluster, other, CHECKS.values())]


def test_layers_of_a_drafter_on_one_side_only_are_refused() -> None:
    p = EngineConfig("P", (Group("full", 2),), 8, "prefill")
    d = EngineConfig("D", (EAGLE,), 8, "decode", drafts=1)
    with pytest.raises(UsageError, match=r"different cache groups on P.*Use eagle for the same"):
        Cluster("c", (p, d))
    assert Cluster("c", (p, replace(d, groups=p.groups))).decode.drafts == 1


def test_scratch_is_never_all_of_a_list() -> None:
    engine = EngineConfig("D", (Group("full", 4), Group("mamba", 4)), 8, "decode", drafts=2)
    assert block_pairs.without_scratch(engine, (5, 6, 7)) == (5,)
    assert block_pairs.without_scratch(engine, (5,)) == (5,)
