"""Live vLLM serves sessions beside other features, and satisfies the spec."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.watching import watched

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 2), Group("mamba", 2)), 10, max_requests=2)
BESIDE: dict[str, dict[str, Any]] = {
    "priority": {"policy": "priority"},
    "events": {"kv_events": True},
    "store": {"store": True, "steps_in_flight": 2},
    "drafts": {"drafts": 2, "steps_in_flight": 2, "groups": (Group("full", 2),)},
    "drafts of a hybrid": {"drafts": 1, "steps_in_flight": 2},
}


@pytest.mark.parametrize("feature", BESIDE)
def test_sessions_satisfy_the_spec_beside(feature: str) -> None:
    engine = replace(ENGINE, **BESIDE[feature])
    cluster = Cluster(feature, (engine,), aborts=True, sessions=True)
    outcome = sample(cluster, watched, seed=7, examples=10, steps=40)
    assert outcome.verdict is Verdict.SAMPLED, outcome.reason or outcome.finding
    assert outcome.coverage["events"]["Continue"] > 0


class Hashed(NamedTuple):
    """A request of which only the hashes are read."""

    request_id: str
    block_hashes: list[bytes]
    resumable: bool = False


def test_a_kept_hash_of_a_dropped_token_is_named_once() -> None:
    """The first block was hashed with a sampled token, which the session drops. What follows is
    named by other letters than in another request, until the session is hashed anew."""
    from kvproof.live.observer.view import Names

    cfg = EngineConfig("E", (Group("full", 2, eagle=True),), 9, drafts=1, hash_lookahead_tokens=1)
    names = Names(cfg)
    names.learn(Hashed("r0", [b"1"], resumable=True), "ab.")
    session = Hashed("r0", [b"1", b"2"])
    names.learn(session, "abcde")
    assert names.prefixes == {(0, b"1"): "ab.", (0, b"2"): "ab𝚌de"}
    assert names.as_hashed(session, "abcde") == "ab𝚌de"

    names.learn(Hashed("r1", [b"3", b"4"]), "abcde")
    again = Hashed("r0", [b"3", b"4"])
    assert names.as_hashed(again, "ab𝚌de") == "abcde"
    assert names.prefixes[0, b"4"] == "abcde"


def test_a_hash_of_other_tokens_is_no_dropped_token() -> None:
    """Neither of a request that is no session, nor where no sampled token was hashed."""
    from kvproof.live.observer.view import Names

    cfg = EngineConfig("E", (Group("full", 2, eagle=True),), 9, drafts=1, hash_lookahead_tokens=1)
    names = Names(cfg)
    names.learn(Hashed("r0", [b"1"]), "ab.")
    names.learn(Hashed("r1", [b"2"], resumable=True), "abd")
    assert names.as_hashed(Hashed("r2", [b"1"]), "abc") == "abc"
    assert names.as_hashed(Hashed("r1", [b"2"], resumable=True), "abc") == "abc"
