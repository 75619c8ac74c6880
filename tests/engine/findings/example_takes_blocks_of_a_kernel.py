"""Kernels take smaller blocks than the engine has, and vLLM's example of a store saves them."""

from collections.abc import Iterator

from tests.engine.findings.end_trim_across_ratios import BEFORE as KERNEL_BLOCKS
from tests.engine.findings.end_trim_across_ratios import KERNEL
from tests.engine.findings.failed_load_stays_cached import FILES
from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(3, 2 * KERNEL + 8)


def look(engines: Engines) -> Iterator[Seen]:
    """Whether a prompt of more than a block is answered, first and when it is loaded."""
    engine = engines["E"]
    engine.inside("tests.engine.findings.failed_load_stays_cached:empty")
    cold = engine.ask(PROMPT).tokens
    yield Seen("a prompt is answered", bool(cold), True)
    if cold:
        assert engine.reset()
        yield Seen("tokens", engine.ask(PROMPT).tokens, cold, False)


STORE = {
    "kv_connector": "ExampleConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"shared_storage_path": FILES},
}
ENGINE = {"block_size": 2 * KERNEL, "num_gpu_blocks_override": 40, "kv_transfer_config": STORE}
SHOWN = Shown(look, {"E": ("full", ENGINE)}, before=KERNEL_BLOCKS)
