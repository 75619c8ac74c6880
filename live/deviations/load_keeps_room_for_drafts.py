"""To begin a load, vLLM asks for the blocks of a step with drafts in addition to the blocks of the
load, although the last block of the load may have room for the drafts."""

from kvproof.live.deviations.facts import HANGS
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import NULL, PREEMPTED, WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """D has a drafter, no request on D holds blocks, and a request waits to load."""
    if not cluster.disaggregated or not cluster.decode.drafts:
        return False
    engine = step.after.engine(cluster.decode.name)
    idle = [r for r in engine.requests if r.status in (WAITING, PREEMPTED) and not r.tables]
    held = [b for r in engine.requests for table in r.tables for b in table if b != NULL]
    offered = {t.request for t in step.after.transfers if t.phase in (Phase.OFFERED, Phase.AWAITED)}
    return bool(idle) and not held and any(r.id in offered for r in idle)


DEVIATION = Deviation(
    name="load_keeps_room_for_drafts",
    says="D with a drafter never begins a load that needs the last blocks of the pool",
    signatures=HANGS,
    at_work=at_work,
)
