"""Beside the blocks of a load those of a step with drafts are asked for, though the load's last
block may have room for them."""

from kvproof.live.deviations.facts import HANGS
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import NULL, PREEMPTED, WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """D has a drafter, nobody on it holds blocks, and somebody waits on it to load."""
    if not cluster.disaggregated or not cluster.decode.drafts:
        return False
    engine = step.after.engine(cluster.decode.name)
    idle = [r for r in engine.requests if r.status in (WAITING, PREEMPTED) and not r.tables]
    held = [b for r in engine.requests for table in r.tables for b in table if b != NULL]
    offered = {t.request for t in step.after.transfers if t.phase in (Phase.OFFERED, Phase.AWAITED)}
    return bool(idle) and not held and any(r.id in offered for r in idle)


DEVIATION = Deviation(
    name="load_keeps_room_for_drafts",
    says="a load that ends in the last blocks of the pool is never begun where D has a drafter",
    signatures=HANGS,
    at_work=at_work,
)
