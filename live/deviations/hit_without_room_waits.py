"""A request with a hit inside a block needs one block more than without the hit. If the pool has no
room for this block, vLLM does not try a shorter hit."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.capacity import has_room_for_hit
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import PREEMPTED, WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """A waiting request can hit inside a block, and the empty pool has no room for the copy."""
    for engine in step.after.engines:
        cfg = cluster.engine(engine.name)
        for request in engine.requests if cfg.partial_block_hits else ():
            waits = request.status in (WAITING, PREEMPTED) and not request.tables
            lengths = {len(key[1]) for key, _ in engine.cached if request.tokens.startswith(key[1])}
            tokens = len(request.tokens)
            if waits and any(not has_room_for_hit(cfg, n, tokens) for n in lengths if n < tokens):
                return True
    return False


DEVIATION = Deviation(
    name="hit_without_room_waits",
    says="a request whose hit inside a block does not fit into the empty pool waits for ever",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
