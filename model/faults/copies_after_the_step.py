"""The copies are made after the step has computed (compare vllm#51766). A request has then read and
written its copy before it was filled, and a cached state is copied after the request has changed
it."""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.state import Engine, Request
from kvproof.model.step import Read


def copied_at_last(
    cfg: config.EngineConfig, engine: Engine, batch: Sequence[tuple[Request, int]]
) -> tuple[Engine, tuple[Read, ...]]:
    """The worker computes the step and makes the copies after it."""
    engine, reads = memory.run(cfg, engine, batch)
    return partial_block_hits.carried_out(engine), reads


FAULT = Fault(
    name="copies_after_the_step",
    origin="vllm#51766",
    mistake="blocks are copied after the step has read and written them",
    replaces={"reference.blocks.partial_block_hits:run_step": copied_at_last},
    breaks=(
        "request_reads_its_own_prefix",
        "state_read_is_state_at_computed",
        "cached_block_holds_its_key",
    ),
    cluster="partial",
    trace_events=6,
)
