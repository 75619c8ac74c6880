"""Mamba layers between P and D: the states of a convolution and of a head, over NIXL's own
workers."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1 import ssm_conv_transfer_utils
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker

from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import ConnectorPlan, Drain, ResetCache, SubmitRequest
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

GROUPS = {
    "behind": (Group("full", 4), Group("mamba", 4)),
    "before": (Group("mamba", 4), Group("full", 4)),
    "two": (Group("full", 4), Group("mamba", 4), Group("mamba", 4)),
}
PROMPTS = SubmitRequest(0, 14, 3), SubmitRequest(0, 10, 3)


def played(groups: tuple[Group, ...], name: str = "nixl-pull", **more: Any) -> EpisodeResult:
    engine = EngineConfig("E", groups, num_blocks=48, chunk_tokens=64)
    plan = ConnectorPlan(engine, (*PROMPTS, Drain(), ResetCache(), *PROMPTS), **more)
    return play(SHIPPED[name].subject, plan)


def spread(ranks: tuple[int, int], latent: bool = False) -> dict[str, Any]:
    """P on the first number of tensor ranks, and D on the second."""
    return {"prefill_ranks": ranks[0], "ranks": ranks[1], "tensor": True, "latent": latent}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))
@pytest.mark.parametrize("name", ["nixl-pull", "nixl-push"])
def test_d_gets_the_state_and_computes_the_last_token(name: str, groups: tuple[Group, ...]) -> None:
    result = played(groups, name)
    assert result.findings == ()
    assert result.judged["loads"] == 4
    assert result.judged["promised tokens"]


@pytest.mark.parametrize("part", ["convolution", "head"])
def test_a_part_of_a_state_that_is_not_copied_is_found(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where D puts a part of the state into the wrong place of the page."""
    built: Any = NixlBaseConnectorWorker._build_mamba_local

    def misplaced(self: Any, addresses: list[int]) -> Any:
        rows = built(self, addresses)
        conv, _ = self._mamba_ssm_size
        of_head = (rows[:, 0] - addresses[0]) % self.block_stride_per_layer[0] == conv
        rows[of_head if part == "head" else ~of_head, 0] += 4
        return rows

    monkeypatch.setattr(NixlBaseConnectorWorker, "_build_mamba_local", misplaced)
    found = {finding.invariant for finding in played(GROUPS["behind"]).findings}
    assert found & {"promised_tokens_are_loaded", "load_stays_in_its_blocks"}


UNEQUAL = [
    (name, on) for name in ("nixl-pull", "nixl-push") for on in SHIPPED[name].subject.unequal
]


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize(("name", "ranks"), UNEQUAL)
def test_p_and_d_may_have_other_numbers_of_ranks(
    name: str, ranks: tuple[int, int], latent: bool
) -> None:
    """Latent attention is on each rank, and of a state each has a part (vllm#49297)."""
    result = played(GROUPS["behind"], name, **spread(ranks, latent))
    assert result.findings == ()
    assert result.judged["loads"] == 4


@pytest.mark.parametrize("name", ["nixl-pull", "nixl-push"])
def test_the_part_of_another_rank_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each rank of the side with more of them takes what the first one has."""
    split: Any = ssm_conv_transfer_utils.MambaConvSplitInfo
    offsets: Any = split.remote_conv_offsets
    monkeypatch.setattr(split, "remote_conv_offsets", lambda own, _, on: offsets(own, 0, on))
    ranks = (1, 2) if name == "nixl-pull" else (2, 1)
    found = played(GROUPS["behind"], name, **spread(ranks)).findings
    assert found[0].invariant == "promised_tokens_are_loaded"
