"""Two requests go on inside the same block, and one gets a copy of the other's copy."""

from collections.abc import Iterator

from tests.engine.findings.copied_before_filled import BLOCK_SIZE, FINER, HALF
from tests.engine.findings.shown import COPIES, Engines, Seen, Shown
from tests.engine.workloads import tokens

LONG = tokens(1, 4 * BLOCK_SIZE)
WARM = LONG[: BLOCK_SIZE + HALF] + tokens(2, 1)


def look(engines: Engines) -> Iterator[Seen]:
    """The same long prompt twice in one step."""
    engine = engines["E"]
    engine.fill(150, 4)
    engine.ask(WARM, 1)
    engine.inside(f"{COPIES}:watch")
    engine.send("one", LONG, 1)
    engine.send("two", LONG, 1)
    engine.take(["run"])
    equal = engine.inside(f"{COPIES}:equal")
    assert equal
    yield Seen("copies that lack the hit", [part for part in equal if part < 0.5], [])


SHOWN = Shown(
    look,
    {
        "E": (
            "mamba",
            FINER
            | {"max_model_len": 512, "max_num_batched_tokens": 512, "num_gpu_blocks_override": 40},
        )
    },
    before=(["call", f"{COPIES}:copy_every_view"],),
)
