"""vLLM did not reserve the lookahead slots in which a drafter writes (vllm#57605, for Mamba in
align mode). At a block boundary the drafter writes outside the block table."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.group_needs import grown
from kvproof.model.state import Table


def no_slots_ahead(
    cfg: config.EngineConfig,
    group: config.Group,
    table: Table,
    end: int,
    ahead: int,  # noqa: ARG001
    *,
    fresh: bool = False,
) -> int:
    """The growth without the lookahead slots."""
    return grown(cfg, group, table, end, 0, fresh=fresh)


FAULT = Fault(
    name="lookahead_not_reserved",
    origin="vllm#57605",
    in_vllm="KVCacheManager.allocate_slots",
    mistake="no blocks are allocated for the lookahead slots of the drafter",
    replaces={"group_needs:grown": no_slots_ahead},
    breaks=("writer_is_alone",),
    cluster="drafts",
    trace_events=2,
)
