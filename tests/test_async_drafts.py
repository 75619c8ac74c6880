"""Speculative decoding with async scheduling: a step is scheduled before it is known which drafts
of the one ahead were right."""

from typing import Any

import pytest

from kvproof.model.config import EngineConfig, Group
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.planted import under

ENGINE = EngineConfig("E", (Group("full", 4, eagle=True),), 20, drafts=2, steps_in_flight=2)


@pytest.mark.parametrize(
    ("fault", "cluster"),
    [
        ("rejected_drafts_are_computed", "async-drafts"),
        ("late_output_takes_placeholder", "async-drafts"),
        ("window_freed_in_flight", "async-drafts-window"),
        ("state_of_rejected_drafts", "hybrid-async-drafts"),
    ],
)
def test_mistakes_show_where_both_meet(fault: str, cluster: str) -> None:
    outcome = under([FAULTS[fault]], explore, CLUSTERS[cluster])
    assert outcome.verdict is Verdict.VIOLATED


def placeholders_of_rejected_drafts_stay(patch: pytest.MonkeyPatch) -> None:
    """vLLM steps the computed tokens back and leaves the placeholders."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.update_from_output

    def kept(self: Any, output: Any, result: Any) -> Any:
        rejected = {
            name: len(drafts) + 1 - len(result.sampled_token_ids[result.req_id_to_index[name]])
            for name, drafts in output.scheduled_spec_decode_tokens.items()
        }
        outputs = original(self, output, result)
        for name, count in rejected.items():
            if name in self.requests and self.requests[name].num_output_placeholders:
                self.requests[name].num_output_placeholders += count
        return outputs

    patch.setattr(Scheduler, "update_from_output", kept)


@pytest.mark.live
def test_live_placeholders_that_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.invariants.registry import INVARIANTS
    from kvproof.live.machine import LiveMachine
    from kvproof.strategies.sampling.stateful import sample

    def run() -> Any:
        finds = [INVARIANTS["placeholders_are_samples_in_flight"]]
        cluster = CLUSTERS["async-drafts"]
        return sample(cluster, LiveMachine, finds, examples=150, use_jobs=True, shrink=False)

    assert run().verdict is Verdict.SAMPLED
    placeholders_of_rejected_drafts_stay(monkeypatch)
    assert run().verdict is Verdict.VIOLATED
