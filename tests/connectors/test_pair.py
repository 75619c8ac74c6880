"""P and D with NIXL between them: its own workers and its own accounting, over memory."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker

from kvproof.live.connectors.drawn import BUFFERED, NARROWER
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.pair import in_its_blocks
from kvproof.live.connectors.shipped import SHIPPED, UNLIKE
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.nixl import CopyingAgent
from kvproof.model.config import Group
from kvproof.model.plans.connector import (
    AbortRequest,
    Action,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    Restart,
    RunSteps,
    SubmitRequest,
    Unlike,
)
from tests.connectors import played as episodes
from tests.connectors.played import (
    LATE,
    LOADED,
    NIXL,
    PROMPTS,
    between_ranks,
    engine_of,
    rules,
)
from tests.engine.findings import inside

BOTH = pytest.mark.parametrize("name", NIXL)


def played(
    *actions: Any, copies: Copies = LATE, name: str = "nixl-pull", **more: Any
) -> EpisodeResult:
    """An episode that begins with two prompts."""
    return episodes.played(name, *PROMPTS, *actions, copies=copies, **more)


@BOTH
def test_d_gets_what_p_computed_and_p_gives_its_blocks_back(name: str) -> None:
    result = played(Drain(), ResetCache(), *PROMPTS, name=name)
    assert result.findings == ()
    assert result.judged["loads"] == result.judged["kept requests"] == 4
    assert result.judged["promised tokens"] == 2 * 2 * (14 + 10 - 8 + 8)


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_client_may_go_away_in_each_phase(steps: int) -> None:
    result = played(RunSteps(steps), AbortRequest(0), RunSteps(1), AbortRequest(1))
    assert result.findings == ()


def test_a_read_whose_message_is_lost_keeps_the_blocks_until_the_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CopyingAgent, "send_notif", lambda *_: None)
    assert played().findings == ()
    monkeypatch.setattr(Clock, "tick", lambda _: None)  # no lease ends where no time passes
    assert "kept_blocks_are_given_back" in rules(played(copies=Copies()))


UNEQUAL = [(name, ranks) for name in NIXL for ranks in SHIPPED[name].subject.unequal]


@pytest.mark.parametrize(("name", "ranks"), UNEQUAL)
def test_p_and_d_may_have_other_numbers_of_ranks(name: str, ranks: tuple[int, int]) -> None:
    result = played(Drain(), ResetCache(), *PROMPTS, name=name, **between_ranks(*ranks))
    assert result.findings == ()
    slots = 2 * 2 * (14 + 10 - 8 + 8)
    assert result.judged["promised tokens"] == slots * ranks[1]


ONE = SubmitRequest(1, 14, 3)
AGAIN = (Restart(), ONE, Drain(), ResetCache(), *PROMPTS, Restart(), *PROMPTS)
"""P is started again, for it is its turn after two requests, and then D."""


@BOTH
@pytest.mark.parametrize("late", [True, False])
def test_one_that_is_started_again_is_another_engine(name: str, late: bool) -> None:
    result = played(*AGAIN, name=name, copies=Copies(late, 2))
    assert result.findings == ()
    assert result.judged["engines that were started again"] == 2
    assert result.judged["loads"] == 7


def test_an_engine_that_is_taken_for_the_one_before_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D connects to an address once, and takes each later engine there for the first one."""
    asks: Any = NixlPullConnectorWorker._nixl_handshake
    known: dict[Any, Any] = {}

    def once(worker: Any, host: str, port: int, *more: Any) -> Any:
        key = worker.engine_id, port
        if key not in known:
            known[key] = asks(worker, host, port, *more)
        return known[key]

    monkeypatch.setattr(NixlPullConnectorWorker, "_nixl_handshake", once)
    assert played(Drain()).findings == ()
    known.clear()
    assert played(*AGAIN).findings[0].invariant == "engine_survives"


COME_AND_GO = (Restart(), ONE, Drain())
"""P is started again, which takes longer than a connector needs to know it."""


def test_one_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for actions, excused in (
        (COME_AND_GO, False),
        (COME_AND_GO[:2], False),
        (COME_AND_GO[:1], True),
    ):
        result = played(*actions)
        assert result.findings == ()
        assert result.judged["engines that are gone"] == 1
        assert bool(result.excused["gone_engines_are_forgotten"]) == excused
    for name in ("_evict_stale_engines", "_cleanup_remote_engines"):
        monkeypatch.setattr(NixlBaseConnectorWorker, name, lambda _: None)
    assert rules(played(*COME_AND_GO)) == {"gone_engines_are_forgotten"}


def test_places_for_drafts_that_nobody_has_made_are_rejected() -> None:
    """The last token of a prompt is computed beside places for drafts (vllm#45237), on P too."""
    groups = Group("full", 4), Group("window", 4, window=8)
    first, second = SubmitRequest(0, 24, 4), SubmitRequest(0, 21, 4)
    engine = engine_of(groups, 64, drafts=2)
    result = episodes.played(
        "nixl-pull", first, RunSteps(3), second, engine=engine, copies=LATE, accepted=2
    )
    assert result.findings == ()
    assert result.judged["loads"] == 2


# States of Mamba layers


GROUPS = {
    "behind": (Group("full", 4), Group("mamba", 4)),
    "before": (Group("mamba", 4), Group("full", 4)),
    "two": (Group("full", 4), Group("mamba", 4), Group("mamba", 4)),
}


def of_states(groups: tuple[Group, ...], name: str = "nixl-pull", **more: Any) -> EpisodeResult:
    actions = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
    return episodes.played(name, *actions, engine=engine_of(groups, 48), **more)


@pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))
@pytest.mark.parametrize("name", NIXL)
def test_d_gets_the_state_and_computes_the_last_token(name: str, groups: tuple[Group, ...]) -> None:
    result = of_states(groups, name)
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
    assert rules(of_states(GROUPS["behind"])) & {LOADED, "load_stays_in_its_blocks"}


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize(("name", "ranks"), UNEQUAL)
def test_states_go_between_other_numbers_of_ranks(
    name: str, ranks: tuple[int, int], latent: bool
) -> None:
    """Latent attention is on each rank, and of a state each has a part (vllm#49297)."""
    result = of_states(GROUPS["behind"], name, latent=latent, **between_ranks(*ranks))
    assert result.findings == ()
    assert result.judged["loads"] == 4


# P and D that do not fit: the connector is to see that before anything is loaded


def planned(unlike: Unlike) -> ConnectorPlan:
    return ConnectorPlan(engine_of(num_blocks=64), (SubmitRequest(0, 14, 2),), unlike=unlike)


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize("name", NIXL)
def test_no_load_succeeds_and_every_request_is_answered(name: str, unlike: Unlike) -> None:
    found = play(SHIPPED[name].subject, planned(unlike))
    assert not found.findings
    assert found.judged["failures"]
    assert not found.judged["promised tokens"]


def test_loads_of_an_engine_that_was_replaced_may_have_failed_too() -> None:
    arrivals = [SubmitRequest(0, tokens, 2) for tokens in (4, 14, 9)]
    plan = replace(planned("model"), actions=(*arrivals, Restart()))
    found = play(SHIPPED["nixl-pull"].subject, plan)
    assert not found.findings
    assert found.judged["engines that were started again"] == 1


@pytest.mark.parametrize("unlike", ["model", "dtype"])
@pytest.mark.parametrize("name", NIXL)
def test_where_nobody_looks_wrong_tokens_are_found(name: str, unlike: Unlike) -> None:
    """vLLM can be told not to look."""
    subject = SHIPPED[name].subject
    trusting = dataclasses.replace(
        subject, extra={**subject.extra, "enforce_handshake_compat": False}
    )
    found = play(trusting, planned(unlike))
    assert found.findings[0].invariant == "promised_tokens_are_loaded"
    assert not play(trusting, planned("")).findings


# A device whose memory NIXL cannot read: KV goes through buffers of the host


STAGED, STAGED_WINDOW = BUFFERED[0], next(e for e in BUFFERED if "window" in e.traits)
CHUNKED, WHOLE = 5, 64
"""The tokens of a step."""


def of_layers(
    layers: ConnectorPlan, chunk: int, *actions: Action, name: str = "nixl-pull"
) -> EpisodeResult:
    engine = replace(layers.engine, num_blocks=48, chunk_tokens=chunk)
    return play(SHIPPED[name].subject, replace(layers, engine=engine, actions=actions))


def prompt(tokens: int) -> SubmitRequest:
    return SubmitRequest(0, tokens, 2)


AGAIN_LONGER = prompt(22), Drain(), ResetCache(), prompt(24), Drain(), prompt(16)


@contextmanager
def mended(names: Sequence[str]) -> Iterator[None]:
    """vLLM with the patches of the reproducers of these findings."""
    for name in names:
        inside.patch(None, name, {})
    try:
        yield
    finally:
        inside.unpatch(None)


@pytest.mark.parametrize("name", NIXL)
@pytest.mark.parametrize("layers", BUFFERED, ids=lambda each: each.words)
def test_what_is_mended_loads_whole_prompts(layers: ConnectorPlan, name: str) -> None:
    with mended(["rest_of_block_is_not_staged", "staging_overwrites_other_groups"]):
        result = of_layers(layers, CHUNKED, *AGAIN_LONGER, name=name)
    assert result.findings == ()
    assert result.judged["promised tokens"]


def test_the_rest_of_a_block_is_missed() -> None:
    assert rules(of_layers(STAGED, WHOLE, prompt(22))) == set()
    assert "promised_tokens_are_loaded" in rules(of_layers(STAGED, CHUNKED, prompt(22)))
    with mended(["rest_of_block_is_not_staged"]):
        assert rules(of_layers(STAGED, CHUNKED, prompt(22))) == set()


def test_groups_that_share_a_tensor_are_told_apart() -> None:
    assert "promised_tokens_are_loaded" in rules(of_layers(STAGED_WINDOW, WHOLE, prompt(3)))
    with mended(["staging_overwrites_other_groups"]):
        assert rules(of_layers(STAGED_WINDOW, WHOLE, prompt(3))) == set()


# One of P and D has blocks that are half as wide as those of the other one


NARROW = NARROWER[0]


def test_as_many_tokens_are_in_narrower_blocks() -> None:
    plan = replace(NARROW, kernel_blocks=2)
    narrow = in_its_blocks(plan, "P")
    assert in_its_blocks(plan, "D") is plan
    assert narrow.engine.num_blocks == 2 * plan.engine.num_blocks
    assert narrow.engine.groups[0].block_size == 4
    assert narrow.kernel_blocks == 1


@pytest.mark.parametrize(
    "layers", [e for e in NARROWER if "window" not in e.traits], ids=lambda each: each.kinds
)
def test_whole_prompts_are_loaded(layers: ConnectorPlan) -> None:
    result = of_layers(layers, WHOLE, *AGAIN_LONGER)
    assert result.findings == ()
    assert result.judged["promised tokens"]


HIT = prompt(9), Drain(), prompt(18)
"""D has the first block of the second prompt, and half of its last block is behind the prompt."""


def test_padding_that_is_paired_with_tokens_is_found() -> None:
    """The finding of this name, and the same prompts with the patch of its reproducer."""
    assert of_layers(NARROW, WHOLE, *HIT).findings[0].invariant == "promised_tokens_are_loaded"
    with mended(["padding_is_paired_with_tokens"]):
        assert of_layers(NARROW, WHOLE, *HIT).findings == ()
