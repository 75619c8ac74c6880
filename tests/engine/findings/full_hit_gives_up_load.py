"""D's attention cache has all that P offers but no state, and D computes the prompt."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

LONG = tokens(5, 6 * 64 + 1)
SHORT = LONG[: 4 * 64 + 1]

LOADED = "external_prefix_cache_hits"


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt, and then its beginning. Its blocks are loaded again, with the state."""
    p, d = engines["P"], engines["D"]
    d.ask(LONG, 1, transfer=p.ask(LONG, 1, transfer=PREFILL).transfer)
    before = d.inside("metric", LOADED)
    got = d.ask(SHORT, transfer=p.ask(SHORT, 1, transfer=PREFILL).transfer)
    yield Seen("tokens that D loads", d.inside("metric", LOADED) - before, len(SHORT) - 1)
    yield Seen("tokens of D", got.tokens, p.ask(SHORT).tokens, wrong=False)


LONGER = {"max_model_len": 512, "max_num_batched_tokens": 512}
SHOWN = Shown(
    look,
    {"P": ("mamba2", LONGER), "D": ("mamba2", LONGER)},
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
    beside=("counter_counts_only_cached",),
)
