"""The prefix cache is reset while a request runs, and its prompt is in the offloading tier."""

from collections.abc import Iterator

from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(3, 100)


def look(engines: Engines) -> Iterator[Seen]:
    """The answer to the request that runs."""
    engine = engines["E"]
    cold = engine.ask(PROMPT).tokens
    engine.send("again", PROMPT, 6)
    engine.take(["steps", 3], ["reset", "running"])
    yield Seen("tokens after the reset", engine.answer("again").tokens, cold)


TIER = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 2**24,
        "spec_name": "CopyingSpec",
        "spec_module_path": "tests.engine.findings.copying",
    },
}
SHOWN = Shown(
    look,
    {"E": ("full", {"num_gpu_blocks_override": 40, "kv_transfer_config": TIER})},
    named=("engine_survives",),
)
