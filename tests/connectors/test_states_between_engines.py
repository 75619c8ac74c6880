"""Mamba layers between P and D: the states of a convolution and of a head, over NIXL's own
workers."""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker

from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.config import Group
from kvproof.model.plans.connector import Drain, ResetCache
from tests.connectors import played as episodes
from tests.connectors.played import LOADED, NIXL, PROMPTS, between_ranks, engine_of, rules

GROUPS = {
    "behind": (Group("full", 4), Group("mamba", 4)),
    "before": (Group("mamba", 4), Group("full", 4)),
    "two": (Group("full", 4), Group("mamba", 4), Group("mamba", 4)),
}


def played(groups: tuple[Group, ...], name: str = "nixl-pull", **more: Any) -> EpisodeResult:
    actions = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
    return episodes.played(name, *actions, engine=engine_of(groups, 48), **more)


@pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))
@pytest.mark.parametrize("name", NIXL)
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
    assert rules(played(GROUPS["behind"])) & {LOADED, "load_stays_in_its_blocks"}


UNEQUAL = [(name, on) for name in NIXL for on in SHIPPED[name].subject.unequal]


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize(("name", "ranks"), UNEQUAL)
def test_p_and_d_may_have_other_numbers_of_ranks(
    name: str, ranks: tuple[int, int], latent: bool
) -> None:
    """Latent attention is on each rank, and of a state each has a part (vllm#49297)."""
    result = played(GROUPS["behind"], name, latent=latent, **between_ranks(*ranks))
    assert result.findings == ()
    assert result.judged["loads"] == 4
