"""Resets of the prefix cache under load."""

from msgspec.structs import replace

from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Compute,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    Submit,
    bare,
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


def test_all_that_runs_starts_over() -> None:
    machine = running()
    machine.take(Complete("E"))
    after = machine.take(ResetRunning("E")).after.engine("E")
    request = after.request("r0")
    assert (request.status, request.computed, request.tables) == ("preempted", 0, ())
    assert (request.prompt, request.output) == ("abcd", ".")
    assert (after.running, after.cached, len(after.free)) == ((), (), 5)
    chose = machine.take(Schedule("E")).event
    assert isinstance(chose, Schedule)
    assert bare(chose) == Schedule("E", (Admit("r0", 0, 0), Compute("r0", 5)))


def test_the_late_output_of_a_step_in_flight_is_thrown_away() -> None:
    machine = running("hybrid-async")
    engine = machine.state.engine("E")
    assert [flight.fate for flight in engine.flights("r0")] == ["counts"]
    after = machine.take(ResetRunning("E")).after.engine("E")
    assert [flight.fate for flight in after.flights("r0")] == ["void"]
    machine.take(Complete("E"))
    assert machine.state.engine("E").request("r0").output == ""
