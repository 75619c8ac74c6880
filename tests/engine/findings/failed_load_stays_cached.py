"""A load within the step fails, and its request is aborted before it computes the blocks again."""

import shutil
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import Engine, Engines, Seen, Shown
from tests.engine.workloads import tokens

STORE = "tests.engine.failing_store"
PROMPT = tokens(3, 200)
FILES = "store"
"""In the working directory of the engine's process."""


def empty(_llm: Any) -> None:
    """The store has nothing yet."""
    shutil.rmtree(FILES, ignore_errors=True)


def begin(engine: Engine) -> None:
    """Loads do not fail, and there are none."""
    engine.inside(f"{STORE}:fail", False)
    engine.inside(f"{__name__}:empty")


def look(engines: Engines) -> Iterator[Seen]:
    """The next request with the prompt."""
    engine = engines["E"]
    begin(engine)
    cold = engine.ask(PROMPT).tokens
    assert engine.reset()
    yield Seen("tokens, loaded", engine.ask(PROMPT).tokens, cold, wrong=False)
    assert engine.reset()
    engine.fill(200, 6)
    engine.inside(f"{STORE}:fail", True)
    engine.take(["add", "aborted", PROMPT, {}], ["steps", 1], ["abort", "aborted"])
    engine.inside(f"{STORE}:fail", False)
    yield Seen("tokens of the next request", engine.ask(PROMPT).tokens, cold)


def store(options: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """An engine with vLLM's example of a store, whose loads can be made to fail."""
    connector = {
        "kv_connector": "FailingStore",
        "kv_connector_module_path": STORE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"shared_storage_path": FILES},
    }
    chosen = {"num_gpu_blocks_override": 40, "kv_transfer_config": connector}
    return {"E": ("full", chosen | options)}


SHOWN = Shown(
    look,
    store({}),
    named=("request_reads_its_own_prefix",),
)
