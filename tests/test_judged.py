"""Runs that go on after each finding: every violation by its signature, what explains it, and what
broke before it."""

import pytest

from kvproof.gate.difference.judged import Judgement, driven
from kvproof.gate.difference.workload import Episodes, Follow, follow
from kvproof.live.known.facts import seen
from kvproof.model.faults.registry import FAULTS
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death
from kvproof.strategies.witnesses import Witness, witnesses
from tests.planted import under


def witness(fault: str, invariant: str) -> Witness:
    return next(w for w in witnesses([FAULTS[fault]]) if w.finding.invariant == invariant)


def taken(run: Witness) -> Follow:
    return follow(run.cluster, "", run.events)


def words(judgement: Judgement) -> list[str]:
    return [key.without_facts for key in judgement.breaks]


def test_what_breaks_is_recorded_by_its_signature_and_in_order() -> None:
    run = witness("front_trim", "request_reads_its_own_prefix")
    found = under([FAULTS["front_trim"]], driven, taken(run), ModelMachine)
    root, *later = found.breaks.values()
    assert root.key.without_facts == "paired_offsets_are_equal after Schedule (full)"
    assert root.key.words != root.key._replace(shape="something_else").words
    assert root.after == ()
    assert {each.signature.check for each in later} == {
        *("cached_block_holds_its_key", "request_reads_its_own_prefix")
    }
    assert all(each.after == (root.key,) for each in later)
    assert not driven(taken(run), ModelMachine).breaks


def test_one_wrong_block_is_counted_once() -> None:
    """The block is written later while it is cached, and a request reads it: consequences."""
    run = witness("failed_load_stays_cached", "writer_is_alone")
    found = under([FAULTS["failed_load_stays_cached"]], driven, taken(run), ModelMachine)
    assert {key.signature.check for key in found.breaks} == {
        *("cached_block_holds_its_key", "counter_counts_only_cached")
    }
    assert all(not each.after for each in found.breaks.values())


def test_a_known_finding_is_named() -> None:
    known = KnownFinding(
        "trimmed_at_the_front",
        "the wrong end is trimmed",
        seen("paired_offsets_are_equal", "Schedule", on=("full",)),
        lambda _cluster, _step, about: about.engine == "D",
    )
    run = witness("front_trim", "paired_offsets_are_equal")
    found = under([FAULTS["front_trim"]], driven, taken(run), ModelMachine, known=[known])
    assert [key.by for key in found.breaks] == [known.name]
    assert found.breaks.keys().isdisjoint(
        under([FAULTS["front_trim"]], driven, taken(run), ModelMachine).breaks
    )


DEATH = Death("AssertionError", "free_blocks", "3 != 4", "assert 1 + 2 == n")


def test_a_death_is_told_by_exception_and_function() -> None:
    class Dying(ModelMachine):
        def take(self, event):  # type: ignore[no-untyped-def]
            step = super().take(event)
            engine = step.after.engines[0]._replace(dead=DEATH)
            self.state = step.after.with_engine(engine)
            return step._replace(after=self.state)

    run = witness("front_trim", "paired_offsets_are_equal")
    found = driven(taken(run), Dying)
    died = "engine_survives after Submit, AssertionError in free_blocks (assert 1 + 2 == n)"
    assert words(found) == [died]
    assert (len(found.records), found.steps) == (1, 1)
    assert found.course.dead == "AssertionError in free_blocks: 3 != 4"


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["front_trim", "preemption_keeps_counter"])
def test_episodes_go_on_after_a_violation(fault: str) -> None:
    cluster = CLUSTERS[FAULTS[fault].cluster]
    episodes = Episodes("", cluster, 0, 15, 20)
    found = under([FAULTS[fault]], driven, episodes, ModelMachine)
    assert {key.signature.check for key in found.breaks} & {*FAULTS[fault].breaks}
    assert len(found.records) >= 15
    assert words(found) == words(under([FAULTS[fault]], driven, episodes, ModelMachine))
    right = driven(episodes, ModelMachine)
    assert not right.breaks
    assert sum(each.counts["tokens hit"] for each in right.records) > 0
    assert all(each.whole for each in right.records)


def test_stimuli_that_are_not_possible_are_skipped_and_counted() -> None:
    run = witness("front_trim", "paired_offsets_are_equal")
    assert driven(taken(run), ModelMachine).records[0].skipped == 0
    twice = (*run.events, run.events[0])
    assert driven(follow(run.cluster, "", twice), ModelMachine).records[0].skipped == 1
