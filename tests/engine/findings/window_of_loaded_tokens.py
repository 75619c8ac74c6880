"""D computes the last prompt token again, and its window reads the null block."""

from collections.abc import Iterator

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens


def look(engines: Engines) -> Iterator[Seen]:
    """The prompts whose window begins with the last token of a block."""
    p, d = engines["P"], engines["D"]
    for length, wrong in ((70, False), (71, True), (72, False), (103, True)):
        sent = tokens(5 + length, length)
        transfer = p.ask(sent, 1, transfer=PREFILL).transfer
        got = d.ask(sent, transfer=transfer)
        yield Seen(f"tokens of D, prompt of {length}", got.tokens, p.ask(sent).tokens, wrong)


NARROW = {"hf_overrides": {"sliding_window": 8}}

SHOWN = Shown(
    look,
    {"P": ("window", NARROW), "D": ("window", NARROW)},
    named=("null_block_is_nobody",),
    beside=("counter_counts_only_cached",),
)
