"""After drafts were rejected, a request may need fewer blocks than it holds. vLLM's align mode
asserted that this never happens (vllm#39562, vllm#43382)."""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.allocation import grow
from kvproof.model.state import Death, Engine, Request


def dies_of_blocks_left(
    cfg: config.EngineConfig,
    engine: Engine,
    request: Request,
    end: int,
    *,
    fresh: bool = False,
    loads: bool = False,
) -> tuple[Engine, Request]:
    """In align mode, stop the engine if a table has more entries than it needs."""
    grown, longer = grow(cfg, engine, request, end, fresh=fresh, loads=loads)
    for group, table in zip(cfg.groups, request.tables, strict=True):
        needed = int(counts.blocks_for_tokens(end, group.block_size)) + cfg.drafts
        if group.aligned and len(table) > needed:
            dead = Death(message=f"the request holds {len(table)} blocks and needs {needed}")
            grown = grown._replace(dead=dead)
    return grown, longer


FAULT = Fault(
    name="fewer_blocks_than_held_dies",
    origin="vllm#43382",
    in_vllm="MambaManager.allocate_new_blocks",
    mistake="the engine dies if a request holds more blocks than its next step needs",
    replaces={"reference.blocks.allocation:grow": dies_of_blocks_left},
    breaks=("engine_survives",),
    cluster="hybrid-drafts-cut",
    trace_events=9,
    dies_in=("allocate_new_blocks",),
)
