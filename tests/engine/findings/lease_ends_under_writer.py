"""P's lease ends while the write to D waits for a handshake, and D gets what is there later."""

from collections.abc import Iterator

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

LEASE_S = 2
PROMPT = tokens(5, 150)
PUSH = {
    "kv_connector": "NixlPushConnector",
    "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
}


def look(engines: Engines) -> Iterator[Seen]:
    """A router sends a prompt to P and D at once, and D's process stands still for a while."""
    p, d = engines["P"], engines["D"]
    right = p.ask(PROMPT).tokens
    loads = p.ask(tokens(1, 40), 1, transfer=PREFILL).transfer
    p.inside("idle", LEASE_S + 0.5)
    assert p.reset()
    d.send("late", PROMPT, 6, loads)
    d.answer("late", limit_s=2)  # it registers with P
    with d.stopped():
        p.send("late", PROMPT, 1, PREFILL)
        p.answer("late")
        p.inside("idle", LEASE_S + 0.5)
        p.fill(200, 4)
    p.inside("idle", 1.0)
    yield Seen("tokens of D", d.answer("late").tokens, right)


SHOWN = Shown(
    look,
    {"P": ("full", {"num_gpu_blocks_override": 20}), "D": ("full", {})},
    transfer=PUSH,
)
