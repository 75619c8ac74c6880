"""P does not have a request any more, and D waits for its write."""

from collections.abc import Iterator

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

TIMEOUT_S = 2
PROMPT = tokens(5, 150)


def look(engines: Engines) -> Iterator[Seen]:
    """A request that P's user has aborted."""
    p, d = engines["P"], engines["D"]
    right = p.ask(PROMPT).tokens
    loads = p.ask(tokens(1, 40), 1, transfer=PREFILL).transfer
    p.send("lost", PROMPT, 1, PREFILL)
    p.take(["abort", "lost"])
    d.send("lost", PROMPT, 6, loads)
    got = d.answer("lost", limit_s=5 * TIMEOUT_S)
    yield Seen("tokens of D", got.tokens or got.reason, right)


SHOWN = Shown(
    look,
    {"P": ("full", {}), "D": ("full", {})},
    transfer={
        "kv_connector": "NixlPushConnector",
        "kv_connector_extra_config": {"push_registration_timeout": TIMEOUT_S},
    },
)
