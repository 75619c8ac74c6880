"""A store loads a Mamba state within the step, and one block less is free than the step takes."""

from collections.abc import Iterator

from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens


def look(engines: Engines) -> Iterator[Seen]:
    """A request that is loaded beside one that runs."""
    engine = engines["E"]
    engine.send("other", tokens(1, 70), 20)
    engine.take(["steps", 2])
    free = engine.inside("free_blocks")
    assert free == 3, f"{free} blocks are free"
    engine.send("loads", tokens(2, 64 + 5), 1)
    yield Seen("how the request ends", engine.answer("loads").reason, "length")


STORE = {
    "kv_connector": "Offering",
    "kv_connector_module_path": "tests.engine.findings.offering",
    "kv_role": "kv_both",
}
SHOWN = Shown(
    look,
    {
        "E": (
            "mamba",
            {
                "max_model_len": 192,
                "mamba_cache_mode": "align",
                "num_gpu_blocks_override": 9,
                "kv_transfer_config": STORE,
            },
        )
    },
    named=("engine_survives",),
)
