"""A prompt is sent again, and its hit inside a block needs more blocks than the pool has."""

from collections.abc import Iterator

from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

BLOCK_SIZE = 64
PROMPT = tokens(4, 3 * BLOCK_SIZE - 1)
BLOCKS = 3 + 2


def look(engines: Engines) -> Iterator[Seen]:
    """The prompt twice, then another one."""
    engine = engines["E"]
    first = engine.ask(PROMPT, 1).tokens
    again = engine.ask(PROMPT, 1)
    if not again.tokens:
        assert engine.inside("free_blocks") == BLOCKS
    yield Seen("token, the prompt sent again", again.tokens or again.reason, first)


SHOWN = Shown(
    look,
    {
        "E": (
            "mamba",
            {
                "block_size": BLOCK_SIZE,
                "max_model_len": 3 * BLOCK_SIZE,
                "mamba_cache_mode": "align",
                "num_gpu_blocks_override": BLOCKS + 1,
                "prefix_match_unit": 32,
            },
        )
    },
    constants={"BLOCK_SIZE": BLOCK_SIZE, "NUM_BLOCKS": BLOCKS + 1},
    named=("step_makes_progress",),
)
