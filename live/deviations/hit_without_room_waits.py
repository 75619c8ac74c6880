"""A request with a hit inside a block needs one block more than without the hit, and so does one
that has loaded or computed its tokens up to the inside of a block, whose state is cached there. If
the pool has no room for this block, vLLM does not try a shorter hit, and no shorter load; a request
that runs alone is preempted, and computes the same part again."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.capacity import has_room_for_hit
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import NULL, PREEMPTED, RUNNING, WAITING, Engine, Request
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """A waiting request can hit inside a block, or has loaded tokens up to there, or one that runs
    alone has computed them, and the empty pool has no room for the copy."""
    for engine in step.after.engines:
        cfg = cluster.engine(engine.name)
        for request in engine.requests if cfg.partial_block_hits else ():
            waits = request.status in (WAITING, PREEMPTED) and not request.tables
            lengths = {len(key[1]) for key, _ in engine.cached if request.tokens.startswith(key[1])}
            tokens = len(request.tokens)
            if waits and any(not has_room_for_hit(cfg, n, tokens) for n in lengths if n < tokens):
                return True
            runs = request.status == RUNNING and _is_alone(engine, request)
            computed = request.tokens[: request.computed]
            kept = any(
                group.aligned and len(computed) % group.block_size and key == (index, computed)
                for index, group in enumerate(cfg.groups)
                for key, _ in engine.cached
            )
            if runs and kept and not has_room_for_hit(cfg, len(computed), tokens):
                return True
    return _loaded(cluster, step)


def _loaded(cluster: Cluster, step: Step) -> bool:
    """Whether vLLM refuses blocks to a request that has loaded tokens up to the inside of a block
    of states, and lacks the copies of these states alone: no other request holds a block."""
    for refusal in step.effects.refused:
        cfg, engine = cluster.engine(refusal.engine), step.after.engine(refusal.engine)
        request = engine.find(refusal.request)
        if request is None or not (request.external and cfg.partial_block_hits):
            continue
        end = request.hit + request.external
        copies = sum(g.aligned and end % g.block_size > 0 for g in cfg.groups)
        if _is_alone(engine, request) and 0 < refusal.needed - refusal.free <= copies:
            return True
    return False


def _is_alone(engine: Engine, request: Request) -> bool:
    others = (r for r in engine.requests if r.id != request.id)
    return all(block == NULL for r in others for table in r.tables for block in table)


DEVIATION = Deviation(
    name="hit_without_room_waits",
    says="a request whose hit or load ends inside a block, and lacks room for it, waits for ever",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
