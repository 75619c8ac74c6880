"""The profile of a vLLM: which known findings it may have, found out by following their traces. The
model is driven in its place."""

import pytest

from kvproof.cli.profile import profile
from kvproof.live.known import traces
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import Machine, ModelMachine
from tests.planted import under

BOTH = "failed_load_stays_cached"
"""A known finding of vLLM that is also a fault of the model."""


def test_what_a_machine_does_is_its_profile() -> None:
    """The reference has none of the known findings, and the model with a fault has that one. What
    only live vLLM is driven with is unknown of it."""
    right = [each.name for each in profile(ModelMachine)]
    assert right == [
        *("begun_block_given_up_by_window", "continued_session_is_not_counted"),
        *("copy_of_load_not_reserved", "session_caches_older_state"),
        *("session_loads_more_than_sent", "shrunk_hit_is_not_matched_again"),
    ]
    wrong = [each.name for each in under([FAULTS[BOTH]], profile, ModelMachine)]
    assert sorted(wrong) == sorted([*right, BOTH])


@pytest.mark.parametrize("error", [AdapterDrift("This vLLM has no x"), TypeError("f() got y")])
def test_a_finding_whose_trace_cannot_be_followed_may_be_there(
    error: Exception,
) -> None:
    def fails(_cluster: Cluster) -> Machine:
        raise error

    with_trace = [name for name, _ in traces.all_of() if name in KNOWN]
    assert [each.name for each in profile(fails)] == with_trace
