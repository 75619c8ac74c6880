"""Full attention registered its blocks only up to the last boundary that all groups share, plus the
block that a drafter's match needs, although hits may end inside a Mamba block (vllm#52419)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.groups import worth_caching
from kvproof.model.state import Request


def up_to_the_boundary(
    cfg: config.EngineConfig, request: Request, group: config.Group, position: int
) -> bool:
    """Whether a block is cached: no block of a prompt's end in a group of narrow blocks."""
    widest = max(cfg.block_sizes)
    end, known = (position + 1) * group.block_size, len(request.prompt)
    after = group.kind == "full" and known - known % widest < end <= known
    return worth_caching(cfg, request, group, position) and not after


FAULT = Fault(
    name="blocks_after_the_boundary_not_cached",
    origin="vllm#52419",
    in_vllm="HybridKVCacheCoordinator.cache_blocks",
    mistake="full attention caches nothing after the last boundary that all groups share",
    replaces={"reference.blocks.groups:worth_caching": up_to_the_boundary},
    breaks=("computed_prompt_is_cached",),
    cluster="partial-unequal",
    trace_events=9,
)
