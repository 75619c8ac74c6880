"""A request ends on D before it is admitted, and P keeps its blocks."""

from collections.abc import Iterator

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(5, 150)


def look(engines: Engines) -> Iterator[Seen]:
    """A request that is written to D, so that D knows P, and then one that D's user aborts."""
    p, d = engines["P"], engines["D"]
    right = p.ask(PROMPT).tokens
    assert p.reset()
    all_free = p.inside("free_blocks")
    p.send("served", PROMPT, 1, PREFILL)
    loads = p.answer("served").transfer
    d.send("served", PROMPT, 6, loads)
    d.answer("served", limit_s=1)
    p.inside("idle", 1.0)
    yield Seen("tokens of D", d.answer("served").tokens, right, wrong=False)
    yield Seen("free blocks of P, served", p.inside("free_blocks"), all_free, wrong=False)
    sent = tokens(6, 150)
    p.send("aborted", sent, 1, PREFILL)
    d.send("aborted", sent, 6, p.answer("aborted").transfer)
    d.take(["abort", "aborted"])
    d.inside("idle", 1.0)
    p.inside("idle", 2.0)
    yield Seen("free blocks of P, aborted on D", p.inside("free_blocks"), all_free)


SHOWN = Shown(
    look,
    {"P": ("full", {}), "D": ("full", {})},
    transfer={"kv_connector": "NixlPushConnector"},
)
