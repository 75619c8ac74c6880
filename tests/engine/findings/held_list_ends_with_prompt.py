"""A prompt is sent again after its answer, and P loads the blocks of the answer's end."""

import time
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import PREFILL, Engine, Engines, Output, Seen, Shown
from tests.engine.pair import HANGS_S
from tests.engine.workloads import tokens

PROMPT = tokens(7, 150)
HELD = {"kv_connector_extra_config": {"bidirectional_kv_xfer": True}}


def answered(p: Engine, d: Engine, sent: list[int]) -> Output:
    """D's answer of 40 tokens. P then has nothing of it in its cache."""
    loads = p.ask(sent, 1, transfer=PREFILL).transfer
    answer = d.ask(sent, 40, transfer=loads)
    ends = time.monotonic() + HANGS_S
    p.ask(tokens(1, 20), 1)
    while not p.reset():  # D's notification is not there yet
        assert time.monotonic() < ends, "P still holds the blocks that D has loaded."
        time.sleep(0.1)
        p.ask(tokens(1, 20), 1)
    p.fill(150, 8)
    return answer


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
