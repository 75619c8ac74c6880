"""P's lease ends while the write to D waits for a handshake, and D gets what is there later."""

import time
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

LEASE_S = 1
PROMPT = tokens(5, 150)


def look(engines: Engines) -> Iterator[Seen]:
    """A router sends a prompt to P and D at once, and D's process stands still for a while."""
    p, d = engines["P"], engines["D"]
    right = p.ask(PROMPT).tokens
    loads = p.ask(tokens(1, 40), 1, transfer=PREFILL).transfer
    p.inside("idle", LEASE_S + 0.5)
    assert p.reset()
    d.send("late", PROMPT, 6, loads)
    while not d.inside(f"{__name__}:knows_p"):
        d.take(["steps", 10])
    time.sleep(0.5)  # until its registration has left
    with d.stopped():
        p.send("late", PROMPT, 1, PREFILL)
        p.answer("late")
        p.inside("idle", LEASE_S + 0.5)
        p.fill(200, 2)
    got: list[int] = []
    for number in range(10):  # P is at work, and D asks whether the write is there
        p.ask(tokens(number, 40), 1)
        got = got or d.answer("late", limit_s=0.3).tokens
    yield Seen("wrong tokens of D", [] if got == right else got, [])


def knows_p(_llm: Any) -> bool:
    """Whether D has made its handshake with P."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return bool(get_kv_transfer_group().connector_worker._remote_agents)


SHOWN = Shown(
    look,
    {"P": ("full", {"max_model_len": 256, "num_gpu_blocks_override": 9}), "D": ("full", {})},
    transfer={
        "kv_connector": "NixlPushConnector",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
    },
)
