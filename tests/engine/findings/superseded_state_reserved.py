"""D counts a block for a cached state that a request does not take."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, PREFILL, Engines, Seen, Shown
from tests.engine.workloads import tokens

FIRST = tokens(5, 2 * 64 + 1)
NEXT = FIRST[:128] + tokens(6, 6)
OTHER = tokens(7, 66)


def look(engines: Engines) -> Iterator[Seen]:
    """Another request runs, and as many blocks are free as the next request takes."""
    p, d = engines["P"], engines["D"]
    d.ask(FIRST, 1, transfer=p.ask(FIRST, 1, transfer=PREFILL).transfer)
    transfer = p.ask(NEXT, 1, transfer=PREFILL).transfer
    d.send("other", OTHER, 28)
    d.take(["steps", 2])
    free = d.inside("free_blocks")
    assert free == 3, f"{free} blocks are free"
    d.send("next", NEXT, 1, transfer)
    d.take(["steps", 1])
    status = d.inside("statuses")["next"]
    yield Seen("its status, while the other one runs", status, "WAITING_FOR_REMOTE_KVS")
    yield Seen("its token", d.answer("next").tokens, p.ask(NEXT, 1).tokens, wrong=False)


SHOWN = Shown(
    look,
    {
        "P": ("mamba2", {}),
        "D": ("mamba2", {"max_model_len": 320, "num_gpu_blocks_override": 8}),
    },
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
    named=("predicted_is_taken",),
    beside=("counter_counts_only_cached",),
)
