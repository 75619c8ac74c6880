"""D keeps blocks free for drafts beside a load that has room for them."""

from collections.abc import Iterator

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import DRAFTS, tokens

LENGTH = 256
BLOCKS = LENGTH // 32


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt that ends in the last block of D's pool, with all blocks free."""
    p, d = engines["P"], engines["D"]
    for length, wrong in ((200, False), (252, True)):
        sent = tokens(length, length)
        transfer = p.ask(sent, 1, transfer=PREFILL).transfer
        got = d.ask(sent, 1, transfer=transfer)
        if not got.tokens:
            assert d.inside("free_blocks") == BLOCKS
        right = p.ask(sent, 1).tokens
        yield Seen(f"token of D, prompt of {length}", got.tokens or got.reason, right, wrong)


SHOWN = Shown(
    look,
    {
        "P": ("full", {"max_model_len": LENGTH}),
        "D": (
            "full",
            {
                "max_model_len": LENGTH,
                "num_gpu_blocks_override": BLOCKS + 1,
                "speculative_config": DRAFTS,
            },
        ),
    },
    fresh=True,
)
