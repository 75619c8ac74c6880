"""Runs of live vLLM that campaigns found, and that known findings explain, each in its own way."""

from collections.abc import Sequence

import pytest

from kvproof.gate.difference import judged
from kvproof.gate.difference.judged import Break
from kvproof.invariants.registry import CHECKS
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Event, Schedule, Submit, TransferDone
from kvproof.model.machine import Machine

pytestmark = pytest.mark.live


def broken(cluster: Cluster, events: Sequence[Event]) -> dict[str, Break]:
    """What live vLLM breaks when it takes these stimuli, by the name of the check."""

    def make(chosen: Cluster) -> Machine:
        from kvproof.live.machine import LiveMachine

        return LiveMachine(chosen)

    found = judged.followed(cluster, make, events, CHECKS.values(), KNOWN.values(), None, None)
    return {each.signature.check: each for each in found.breaks.values()}


def steps(engine: str, times: int) -> tuple[Event, ...]:
    return (Schedule(engine), Complete(engine)) * times


def test_beside_mamba_a_window_of_d_is_paired_from_the_front_of_that_of_p() -> None:
    def groups(width: int) -> tuple[Group, ...]:
        return (
            Group("full", width),
            Group("window", 4 * width, 3),
            Group("mamba", 4 * width),
        )

    prefill = EngineConfig("P", groups(2), 24, "prefill", physical_per_logical=2)
    decode = EngineConfig("D", groups(1), 34, "decode", prefix_caching=False)
    cluster = Cluster("ratios", (prefill, decode), (Job("r0", "abcdefgh", 3),))
    events = (Submit("P", "r0"), *steps("P", 2), Submit("D", "r0"), Schedule("D"))
    found = broken(cluster, events)
    assert found["paired_offsets_are_equal"].by == "end_trim_across_ratios"


def test_a_part_that_ends_inside_a_state_is_computed_again_and_again() -> None:
    groups = Group("full", 4, eagle=True), Group("mamba", 8)
    engine = EngineConfig("E", groups, 9, drafts=2)
    cluster = Cluster("tight", (engine,), (Job("r0", "aaabbbbcdef", 4),), evictions=True)
    found = broken(cluster, (Submit("E", "r0"), *steps("E", 2)))
    assert found["every_request_can_finish"].by == "hit_without_room_waits"


def test_a_turn_of_p_reads_null_blocks_of_a_longer_list() -> None:
    groups = (Group("window", 4, 3, eagle=True),)
    prefill = EngineConfig("P", groups, 24, "prefill", 8, drafts=2)
    decode = EngineConfig("D", groups, 12, "decode", 8, drafts=2)
    jobs = Job("r0", "a" * 16, 1), Job("r1", "a" * 5, 4, follows="r0")
    cluster = Cluster("turns", (prefill, decode), jobs, follow_up_turns=True)
    on_d = (Submit("D", "r0"), Schedule("D"), TransferDone("r0"), *steps("D", 1))
    events = (Submit("P", "r0"), *steps("P", 2), *on_d, Submit("P", "r1"), Schedule("P"))
    found = broken(cluster, events)
    assert found["null_block_is_nobody"].by == "held_list_ends_with_prompt"
