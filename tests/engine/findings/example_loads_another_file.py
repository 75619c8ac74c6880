"""A prompt of whole blocks and one token, of which vLLM's example of a store has the beginning."""

from collections.abc import Iterator

from tests.engine.findings.failed_load_stays_cached import FILES
from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(3, 65)


def look(engines: Engines) -> Iterator[Seen]:
    """The answer, once with an empty store and once with one that has the first block."""
    engine = engines["E"]
    engine.inside("tests.engine.findings.failed_load_stays_cached:empty")
    cold = engine.ask(PROMPT).tokens
    engine.inside("tests.engine.findings.failed_load_stays_cached:empty")
    assert engine.reset()
    engine.ask(PROMPT[:40])
    assert engine.reset()
    yield Seen("tokens", engine.ask(PROMPT).tokens, cold)


STORE = {
    "kv_connector": "ExampleConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"shared_storage_path": FILES},
}
SHOWN = Shown(
    look,
    {"E": ("full", {"num_gpu_blocks_override": 40, "kv_transfer_config": STORE})},
)
