"""A loaded state that ends inside a block is cached, so the request needs a copy of it to go on.
While the request loads, vLLM keeps no block free for this copy, and another load takes it."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import LOADED, LOADING, PREEMPTED, WAITING
from kvproof.model.step import Step

WAITS = (WAITING, PREEMPTED)
HOLDS = (LOADING, LOADED, *WAITS)


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """No request of an engine runs. One that has loaded tokens up to the inside of a block of
    states waits with its blocks, and so does another one, which loads or has loaded."""
    for engine in step.after.engines:
        cfg = cluster.engine(engine.name)
        state = cfg.aligned_group
        if engine.running or state is None or not cfg.partial_block_hits:
            continue
        holding = [r for r in engine.requests if any(r.tables) and r.status in HOLDS and r.external]
        waits = (r for r in holding if r.status in WAITS)
        if len(holding) > 1 and any((r.hit + r.external) % state.block_size for r in waits):
            return True
    return False


DEVIATION = Deviation(
    name="copy_of_load_not_reserved",
    in_vllm="Scheduler._request_remaining_blocks",
    says="two loads take the last blocks, and each then needs one more, for a copy of its state",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
