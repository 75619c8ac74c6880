"""A load of more tokens than a hit has inside its last block gives these up. vLLM then asserts that
every window group also has the blocks before, although only full attention hits them."""

from kvproof.live.deviations.facts import after, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """An engine of a pair, with a window group and hits inside a block, dies where it gives up the
    tokens inside the last block of a hit."""
    cfg, dead = cluster.engine(about.engine), after(step, about).dead
    windows = any(group.kind == "window" for group in cfg.groups)
    died = dead is not None and dead.function == "truncate_computed_blocks"
    return cfg.connected and cfg.partial_block_hits and windows and died


DEVIATION = Deviation(
    name="begun_block_given_up_by_window",
    in_vllm="KVCacheManager.truncate_computed_blocks",
    says="an engine dies where it gives up a begun block for a load, and a window lacks a block",
    signatures=seen("engine_survives", "Schedule"),
    at_work=at_work,
)
