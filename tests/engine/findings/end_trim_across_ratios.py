"""A block of P is wider than a block of D, and the kernels of both need narrow ones."""

from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

KERNEL = 32


def kernel_blocks(_llm: Any) -> None:
    """Kernels take blocks of one size, as those of some GPU backends do."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda _=None: [KERNEL])


def look(engines: Engines) -> Iterator[Seen]:
    """Prompts that end in either half of P's last block. With the patch D refuses P, and a request
    ends with an error."""
    p, d = engines["P"], engines["D"]
    for length, wrong in ((128, False), (96, True), (160, True)):
        sent = tokens(length, length)
        got = d.ask(sent, transfer=p.ask(sent, 1, transfer=PREFILL).transfer)
        other = bool(got.tokens) and got.tokens != p.ask(sent).tokens
        yield Seen(f"D's tokens are not P's, prompt of {length}", other, False, wrong)


BEFORE = (["call", f"{__name__}:kernel_blocks"],)
SHOWN = Shown(
    look,
    {"P": ("full", {"block_size": 2 * KERNEL}), "D": ("full", {"block_size": KERNEL})},
    before=BEFORE,
)
