"""Resets of the prefix cache under load."""

from msgspec.structs import replace

from kvproof.model.events import (
    Abort,
    Complete,
    ResetPrefixCache,
    Schedule,
    Submit,
)
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.apply import apply


def running(name: str = "resetting") -> ModelMachine:
    """A model with one running request that has computed its prompt."""
    cluster = replace(CLUSTERS[name], resets_any_time=True)
    machine = ModelMachine(cluster)
    machine.take(Submit("E", "r0"))
    machine.take(Schedule("E"))
    return machine


def test_it_is_refused_while_blocks_are_in_use() -> None:
    machine = running()
    machine.take(Complete("E"))
    before = machine.state
    assert ResetPrefixCache("E") in machine.stimuli()
    assert machine.take(ResetPrefixCache("E")).after == before
    machine.state = apply(machine.cluster, machine.state, Abort("E", "r0")).after
    after = machine.take(ResetPrefixCache("E")).after.engine("E")
    assert after.cached == ()
    assert after.ghost.served == ()
