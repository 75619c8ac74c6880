"""A block is copied in the step that fills it, and the copy has the content from before."""

from collections.abc import Iterator

from tests.engine.findings.shown import COPIES, Engines, Seen, Shown
from tests.engine.workloads import tokens

BLOCK_SIZE = 64
HALF = BLOCK_SIZE // 2
LONG = tokens(1, 2 * BLOCK_SIZE + 1)
WARM = LONG[:HALF] + tokens(2, 1)
AGAIN = LONG[:HALF] + tokens(3, BLOCK_SIZE)
PARTING = LONG[:BLOCK_SIZE] + tokens(4, BLOCK_SIZE)


def look(engines: Engines) -> Iterator[Seen]:
    """A long prompt, and beside it one with the same first block."""
    engine = engines["E"]
    engine.fill(150, 4)
    engine.ask(WARM, 1)
    engine.ask(AGAIN, 1)
    engine.inside("evict_one")
    engine.inside(f"{COPIES}:watch")
    engine.send("long", LONG, 1)
    engine.send("parting", PARTING, 6)
    engine.take(["run"])
    equal = engine.inside(f"{COPIES}:equal")
    assert equal
    yield Seen("copies that lack the hit", [part for part in equal if part < 0.5], [])


FINER = {
    "block_size": BLOCK_SIZE,
    "mamba_cache_mode": "align",
    "max_num_seqs": 32,
    "prefix_match_unit": HALF,
}
SHOWN = Shown(
    look,
    {"E": ("attention first", FINER | {"max_model_len": 256, "num_gpu_blocks_override": 20})},
    before=(["call", f"{COPIES}:copy_every_view"],),
    named=(
        "cached_block_holds_its_key",
        "request_reads_its_own_prefix",
    ),
)
