"""Behind a sliding window, vLLM counts no block of the window's group among those that a loading
request will still need, and another load takes it."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import LOADED, LOADING, NULL, PREEMPTED, WAITING
from kvproof.model.step import Step

WAITS = (WAITING, PREEMPTED)
HOLDS = (LOADING, LOADED, *WAITS)


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """No request of an engine runs. One that has loaded tokens, and whose window has left some
    behind, waits with its blocks, and so does another one, which loads or has loaded."""
    for engine in step.after.engines:
        groups = cluster.engine(engine.name).groups
        windows = [index for index, group in enumerate(groups) if group.kind == "window"]
        if engine.running:
            continue
        holding = [r for r in engine.requests if any(r.tables) and r.status in HOLDS and r.external]
        waits = (r for r in holding if r.status in WAITS)
        if len(holding) > 1 and any(r.tables[i][:1] == (NULL,) for r in waits for i in windows):
            return True
    return False


DEVIATION = Deviation(
    name="window_of_load_not_reserved",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    says="behind a window, no block of it is kept free for a load, and another load takes it",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
