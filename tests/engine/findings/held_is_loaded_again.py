"""A next turn comes after D's blocks have expired, and P waits for a read that it never begins."""

import time
from collections.abc import Iterator

from tests.engine.findings.held_list_ends_with_prompt import answered
from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

TTL_S = 2
PROMPT = tokens(7, 150)


def look(engines: Engines) -> Iterator[Seen]:
    """The next turn."""
    p, d = engines["P"], engines["D"]
    first = answered(p, d, PROMPT)
    turn = [*PROMPT, *first.tokens, *tokens(8, 60)]
    cold = p.ask(turn, 1).tokens
    assert p.reset()
    time.sleep(TTL_S + 1)
    d.inside("idle", 1.0)
    got = p.ask(turn, 1, transfer=first.transfer)
    yield Seen("first token of the next turn", got.tokens or got.reason, cold)


SHOWN = Shown(
    look,
    {"P": ("full", {}), "D": ("full", {})},
    transfer={
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "bidirectional_kv_xfer": True,
            "decoder_kv_blocks_ttl": TTL_S,
        },
    },
)
