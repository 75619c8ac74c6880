"""A prompt is sent again after its answer, and P loads the blocks of the answer's end."""

import time
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import PREFILL, Engine, Engines, Output, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(7, 150)
HELD = {"kv_connector_extra_config": {"bidirectional_kv_xfer": True}}


def answered(p: Engine, d: Engine, sent: list[int]) -> Output:
    """D's answer of 40 tokens. P then has nothing of it in its cache."""
    loads = p.ask(sent, 1, transfer=PREFILL).transfer
    answer = d.ask(sent, 40, transfer=loads, limit_s=60)
    for _ in range(50):  # until D's notification is there
        p.ask(tokens(1, 20), 1)
        if p.reset():
            p.fill(150, 8)
            return answer
        time.sleep(0.1)
    raise AssertionError("P still holds the blocks that D has loaded.")


def look(engines: Engines) -> Iterator[Seen]:
    """The same prompt again, and a later request for it that has nothing to do with D."""
    p, d = engines["P"], engines["D"]
    cold = p.ask(PROMPT).tokens
    assert p.reset()
    transfer: dict[str, Any] | None = answered(p, d, PROMPT).transfer
    again = p.ask(PROMPT, transfer=transfer)
    yield Seen("tokens of P, the prompt sent again", again.tokens, cold)
    yield Seen("tokens of P, a later plain request", p.ask(PROMPT).tokens, cold)


SHOWN = Shown(
    look,
    {"P": ("full", {}), "D": ("full", {})},
    transfer=HELD,
    slow=False,
)
