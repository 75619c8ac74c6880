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
    """No request of an engine runs. One that has loaded tokens, and whose windows have let some go,
    waits with its blocks. It lacks no more blocks than it has such windows. Another one loads, or
    has loaded, and holds blocks too."""
    for refusal in step.effects.refused:
        engine = step.after.engine(refusal.engine)
        request = engine.find(refusal.request)
        if request is None or engine.running or request.status not in WAITS:
            continue
        groups = cluster.engine(engine.name).groups
        tables = zip(groups, request.tables, strict=False)
        windows = sum(g.kind == "window" and t[:1] == (NULL,) for g, t in tables)
        holding = [r for r in engine.requests if any(r.tables) and r.status in HOLDS and r.external]
        lacks = refusal.needed - refusal.free
        if request in holding and len(holding) > 1 and 0 < lacks <= windows:
            return True
    return False


DEVIATION = Deviation(
    name="window_of_load_not_reserved",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    says="behind a window, no block of it is kept free for a load, and another load takes it",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
