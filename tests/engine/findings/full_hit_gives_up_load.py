"""D's attention cache has all that P offers but no state, and D computes the prompt."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

LONG = tokens(5, 6 * 32 + 1)
SHORT = LONG[: 4 * 32 + 1]


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt, and then its beginning."""
    p, d = engines["P"], engines["D"]
    d.ask(LONG, 1, transfer=p.ask(LONG, 1, transfer=PREFILL).transfer)
    got = d.ask(SHORT, transfer=p.ask(SHORT, 1, transfer=PREFILL).transfer)
    yield Seen("prompt tokens that D need not compute", got.cached, len(SHORT) - 1)
    yield Seen("tokens of D", got.tokens, p.ask(SHORT).tokens, wrong=False)


SHOWN = Shown(
    look,
    {"P": ("mamba2", {}), "D": ("mamba2", {})},
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
)
