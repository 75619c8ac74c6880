"""Numbers that refute a claim, turned into runs: of the model, and of live vLLM with the mistake
put back."""

import functools
import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvproof.cli.main import main
from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.events import stimulus
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read
from kvproof.proofs.cluster_template import ClusterTemplate, clusters
from kvproof.proofs.from_numbers import template_of
from kvproof.proofs.induction import claimed
from kvproof.proofs.proof import Proof
from kvproof.proofs.prove import everything, prove
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.proofs.witness import (
    WitnessResult,
    breaks_claim,
    matching,
    witness,
    witnesses,
)
from kvproof.strategies.conformance.replay import record, replay
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.cover import REFUTING, once_each
from tests.mistakes import MISTAKES
from tests.planted import under

pytestmark = pytest.mark.proof

ON_LIVE_MAX = 12
"""Runs of the model that live vLLM is asked to take, the nearest first. It admits a request only
where the whole prompt fits, so that it does not take every run that the model takes."""

NO_PREEMPTION = (
    "without a prefix cache P computes a prompt it admits to its end: the whole prompt fitted, and "
    "no other request grows meanwhile"
)
NOT_ON_LIVE = {
    "state.delivered_is_counted": NO_PREEMPTION,
    "state.truncated_once": NO_PREEMPTION,
}
"""Claims whose numbers live vLLM cannot be driven to, and why."""

SOONER_ON_LIVE = {"truncation_without_guard": "truncated_at_most_once"}
"""Invariants that live vLLM breaks before a run is at its end, by fault. A runner knows a prompt as
it was first told: for one that is truncated again it samples nothing, and P is never done."""

INSIDE_A_STEP = {
    ("window_freed_too_soon", "window.table_fits_its_tokens"),
    ("running_state_freed", "mamba.null_is_not_needed"),
    ("running_state_freed", "mamba.state_is_there"),
    ("hit_not_counted", "full.full_attention_keeps_all"),
    ("hit_not_counted", "mamba.hashed_are_counted"),
    ("hit_not_counted", "window.hashed_are_counted"),
}
"""Claims that are broken inside a step only, between an admission or a release and the chunk that
follows it: the run breaks an invariant, and no state shows the claim."""


def _refuted() -> list[tuple[str, str]]:
    """Each fault with each obligation and claim that it refutes by name."""
    by_name = {(o.killed_by, o.id) for o in OBLIGATIONS.values()}
    by_induction = {(f.name, claim) for f in FAULTS.values() for claim in f.refutes}
    return sorted(by_name | by_induction | FALLEN)


FALLEN = {
    (fault.name, claim)
    for fault in FAULTS.values()
    for claim in fault.refutes_in_turn
    if not any(claim in other.refutes for other in FAULTS.values())
}
"""Claims that only fall with others."""

REFUTED = _refuted()
KNOWN_OF_LIVE = (
    "null_blocks_counted_as_cached",
    "window_of_loaded_tokens",
    "end_trim_across_ratios",
    "superseded_state_reserved",
)
"""Faults that vLLM 0.32.0 has: nothing need be put back."""

LIVE = [
    (f, o) for f, o in REFUTED if (f in MISTAKES or f in KNOWN_OF_LIVE) and o not in NOT_ON_LIVE
]


@functools.cache
def proofs_of(fault: str) -> dict[str, Proof]:
    """What a fault refutes, settled together: what a walk breaks is known by what else is false."""
    names = [name for by, name in REFUTED if by == fault]
    return {p.id: p for p in under([FAULTS[fault]], prove, names=names)}


def proof_of(fault: str, name: str) -> Proof:
    return proofs_of(fault)[name]


@functools.cache
def of(fault: str, name: str) -> WitnessResult:
    proof, faults = proof_of(fault, name), [FAULTS[fault]]
    if (fault, name) in INSIDE_A_STEP:
        # `witness` comes to the same after it has looked in vain for a visible state.
        return next(witnesses(proof, faults, visible=False))
    return witness(proof, faults)


@functools.cache
def without_fault(cluster: Cluster) -> Verdict:
    return explore(cluster, states_max=60_000).verdict


LONG = {
    "failed_load_waits_on",
    "growth_rounds_down",
    "one_token_prompt_truncated",
    "prefill_decodes_on",
}
"""The run that these break is found in half a minute or more."""


@pytest.mark.parametrize(("fault", "name"), once_each(REFUTED, {*REFUTING} - LONG))
def test_refuting_numbers_break_a_matching_invariant_in_a_run(fault: str, name: str) -> None:
    """The run also breaks the claim about counts, and the cluster is clean without the fault. One
    test asks all, since to find the run takes longest."""
    found = of(fault, name)
    assert found.finding is not None, found.reason
    assert found.cluster is not None
    faults = [FAULTS[fault]]
    allowed = {i.id for i in matching(proof_of(fault, name), faults)}
    assert found.finding.invariant in allowed
    changes = under(faults, record, ModelMachine(found.cluster), found.events)
    assert changes is not None
    trace = Trace(found.cluster, found.events, changes, found.finding, (fault,))
    again = under(faults, replay, ModelMachine(found.cluster), trace)
    assert (again.differs, again.outcome.finding) == (None, found.finding)
    if name in claimed() and (fault, name) not in INSIDE_A_STEP:
        about = claimed()[name]
        assert under(faults, breaks_claim, found.cluster, found.events, about)
    assert without_fault(replace(found.cluster, name="scope")) is Verdict.EXHAUSTED


def test_every_fault_that_refutes_anything_is_asked() -> None:
    assert {f for f, _ in REFUTED} == {
        *(o.killed_by for o in OBLIGATIONS.values()),
        *(fault.name for fault in FAULTS.values() if fault.refutes),
    }
    assert {name for _, name in REFUTED} == set(everything())
    assert set(NOT_ON_LIVE) <= {name for _, name in REFUTED}


@pytest.mark.nightly
def test_most_numbers_are_a_cluster_as_they_are() -> None:
    as_they_are = [r for r in REFUTED if not of(*r).changes]
    assert len(as_they_are) > len(REFUTED) / 2


def test_what_is_not_refuted_has_no_run() -> None:
    (proof,) = prove(names=["truncated_once"])
    assert witness(proof, []).reason == "truncated_once is PROVED, not VIOLATED"


def test_numbers_that_break_nothing_have_no_run() -> None:
    fault = FAULTS["front_trim"]
    proof = Proof(
        "truncated_once", "", Verdict.VIOLATED, {"submitted_prompt_tokens": 2, "backoff": 1}
    )
    found = witness(proof, [fault], templates_max=3)
    assert found.finding is None
    assert found.outcome.verdict is Verdict.UNKNOWN
    assert found.reason == (
        "no run breaks paired_offsets_are_equal or request_reads_its_own_prefix in the clusters of "
        "the 3 templates nearest to the numbers"
    )


def test_numbers_that_no_cluster_can_have_say_why() -> None:
    unequal = {"p_ratio": 2, "d_ratio": 1, "submitted_prompt_tokens": 3, "backoff": 1}
    proof = Proof("transfer_of_full.delivered_is_loaded", "", Verdict.VIOLATED, unequal)
    found = witness(proof, [FAULTS["decode_loads_whole_prompt"]])
    assert found.impossible.startswith(
        "Cluster transfer_of_full.delivered_is_loaded combines unequal physical"
    )
    assert found.changes == ("p_ratio 1 for 2",)
    proof = Proof(
        "truncated_once", "", Verdict.VIOLATED, {"submitted_prompt_tokens": 3, "backoff": 1}
    )
    crowded = witness(proof, [FAULTS["truncation_without_guard"]])
    assert (crowded.impossible, crowded.changes) == ("", ("crowded",))


def test_numbers_are_read_by_their_names() -> None:
    assert template_of({"submitted_prompt_tokens": 3, "backoff": 1}) == ClusterTemplate(
        kinds=("full", "mamba"), prompt=3
    )
    lists = {"local_first": 2, "local_slots": 1, "remote_first": 0, "remote_slots": 3}
    assert template_of(lists) == ClusterTemplate(prompt=3, shared=2)
    hit = {"hit_blocks": 2, "external": 3, "block_size": 4, "window": 5}
    expected = ClusterTemplate(
        kinds=("full", "window"), kernel=4, window=5, chunk=22, prompt=11, shared=8
    )
    assert template_of(hit) == expected
    assert template_of({"total": 2}, "pool") == ClusterTemplate(total=2, connected=False)


def test_same_proof_same_run() -> None:
    proof = proof_of("front_trim", "trim_equal_positions")
    assert witness(proof, [FAULTS["front_trim"]]) == of("front_trim", "trim_equal_positions")


def test_what_is_open_is_filled_with_the_simplest_first() -> None:
    found = list(clusters(ClusterTemplate(prompt=2), "n"))
    assert [[j.prompt for j in c.jobs] for c in found] == [["ab"], ["ab", "ab"]]
    crowded = list(clusters(ClusterTemplate(prompt=2, crowded=True), "n"))
    assert {tuple(j.prompt for j in c.jobs) for c in crowded} == {("AB", "ab")}
    blocks = [c.prefill.num_blocks for c in crowded]
    assert blocks[1:] == sorted(blocks[1:])


def test_the_command_keeps_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prove", "--fault", "front_trim", "--obligation", "trim_equal_counts"]
    command += ["--obligation", "trim_equal_positions", "--witness", "--traces", str(tmp_path)]
    assert main(command) == 1
    said = capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert str(path) in said
    assert "paired_offsets_are_equal" in said
    assert read(path).finding == of("front_trim", "trim_equal_positions").finding
    assert main(["replay", str(path)]) == 1


def test_a_witness_needs_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--witness"]) == 2
    assert "Use --fault NAME together with --witness." in capsys.readouterr().err


def on_live(fault: str, found: WitnessResult) -> bool:
    """Whether live vLLM, given the events of a run, breaks the same invariant, or the one that it
    breaks before."""
    from kvproof.live.machine import LiveMachine

    assert found.cluster is not None
    assert found.finding is not None
    machine = LiveMachine(found.cluster)
    try:
        for event in found.events:
            step = machine.take(stimulus(event))
            invariant = INVARIANTS[SOONER_ON_LIVE.get(fault, found.finding.invariant)]
            if any(True for _ in broken(found.cluster, step, [invariant])):
                return True
    except NotAllowed:
        pass
    finally:
        machine.close()
    return False


@pytest.mark.live
@pytest.mark.parametrize(("fault", "name"), once_each(LIVE, REFUTING))
def test_the_same_run_breaks_it_on_live_vllm(
    fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the fault is patched in, the run must not break it on vLLM as it is: known deviations
    break the same invariant in some clusters."""
    known = [FAULTS[name] for name in KNOWN if name in FAULTS]
    released = fault in {f.name for f in known}
    assert released == (fault not in MISTAKES)
    found = witnesses(proof_of(fault, name), [FAULTS[fault]], known)

    def shows(run: WitnessResult) -> bool:
        if not released and on_live(fault, run):
            return False
        with monkeypatch.context() as patch:
            if not released:
                MISTAKES[fault].patch(patch)
            return on_live(fault, run)

    assert any(map(shows, itertools.islice(found, ON_LIVE_MAX)))
