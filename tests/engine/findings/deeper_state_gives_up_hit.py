"""D's attention cache lacks the end of a prompt whose state it has, and D loads all of it again."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(5, 4 * 64 + 1)
LOADED = "external_prefix_cache_hits"


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt twice; between them the last of its attention blocks is evicted."""
    p, d = engines["P"], engines["D"]
    first = d.ask(PROMPT, transfer=p.ask(PROMPT, 1, transfer=PREFILL).transfer)
    d.inside("evict_one")
    before = d.inside("metric", LOADED)
    again = d.ask(PROMPT, transfer=p.ask(PROMPT, 1, transfer=PREFILL).transfer)
    yield Seen("tokens that D loads the second time", d.inside("metric", LOADED) - before, 64)
    yield Seen("tokens of D", again.tokens, first.tokens, wrong=False)


SHOWN = Shown(
    look,
    {
        "P": ("mamba2", {"max_model_len": 320}),
        "D": (
            "mamba2",
            {
                "max_model_len": 320,
                "num_gpu_blocks_override": 16,
                "max_num_seqs": 16,
                "prefix_cache_retention_interval": 64,
            },
        ),
    },
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
    beside=("counter_counts_only_cached",),
)
