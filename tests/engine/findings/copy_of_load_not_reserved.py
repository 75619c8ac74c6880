"""D loads two prompts that end inside a block, and then lacks a block for either."""

import time
from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, NOT_SERVED, PREFILL, Engines, Seen, Shown
from tests.engine.process import Output
from tests.engine.workloads import tokens

UNIT, BLOCK_SIZE = 32, 64
POOL = 4
PROMPTS = {"one": tokens(8, UNIT + 1), "two": tokens(9, UNIT + 1)}
WAITS_S = 60.0

OPTIONS = {"block_size": BLOCK_SIZE, "prefix_match_unit": UNIT}


def look(engines: Engines) -> Iterator[Seen]:
    """Both prompts at the same time."""
    p, d = engines["P"], engines["D"]
    for name, prompt in PROMPTS.items():
        d.send(name, prompt, 1, p.ask(prompt, 1, transfer=PREFILL).transfer)
    served: dict[str, Output] = {}
    ends = time.monotonic() + WAITS_S
    while len(served) < len(PROMPTS) and time.monotonic() < ends:
        served |= d.take(["steps", 100]).outputs
    for name, prompt in PROMPTS.items():
        got = served[name].tokens if name in served else NOT_SERVED
        yield Seen(f"token of D, prompt {name}", got, p.ask(prompt, 1).tokens)


SHOWN = Shown(
    look,
    {
        "P": ("mamba2", OPTIONS),
        "D": (
            "mamba2",
            OPTIONS | {"max_model_len": 2 * BLOCK_SIZE, "num_gpu_blocks_override": POOL + 1},
        ),
    },
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
)
