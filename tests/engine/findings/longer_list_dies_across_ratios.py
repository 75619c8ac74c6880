"""A block of D is wider than a block of P, and D dies of the padding in its last block."""

from collections.abc import Iterator

from tests.engine.findings.end_trim_across_ratios import BEFORE, KERNEL
from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens


def look(engines: Engines) -> Iterator[Seen]:
    """Prompts that end in either half of D's last block. With the patch D refuses P, and a request
    ends with an error."""
    p, d = engines["P"], engines["D"]
    for length, wrong in ((128, False), (96, True)):
        sent = tokens(length, length)
        got = d.ask(sent, transfer=p.ask(sent, 1, transfer=PREFILL).transfer)
        dead = "AssertionError" in str(got.reason)
        yield Seen(f"D is dead after a prompt of {length}", dead, False, wrong)


SHOWN = Shown(
    look,
    {"P": ("full", {"block_size": KERNEL}), "D": ("full", {"block_size": 2 * KERNEL})},
    before=BEFORE,
)
