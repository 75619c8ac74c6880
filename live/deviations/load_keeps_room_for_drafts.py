"""To begin a load, vLLM asks for the blocks of a step with drafts in addition to the blocks of the
load, although the last block of the load may have room for the drafts."""

from kvproof.live.deviations.facts import HANGS
from kvproof.model.arithmetic import counts
from kvproof.model.because import About
from kvproof.model.capacity import reserved_blocks
from kvproof.model.config import REVERSE, Cluster, EngineConfig
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import NULL, PREEMPTED, WAITING, Engine, State
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """An engine has a drafter, no request on it will give blocks back, and a request waits to
    load."""
    return cluster.disaggregated and any(
        cluster.engine(engine.name).drafts and _waits_to_load(cluster, step.after, engine)
        for engine in step.after.engines
    )


def _waits_to_load(cluster: Cluster, state: State, engine: Engine) -> bool:
    """Whether no request holds blocks, but those whose read was lost, and one would load that needs
    the last blocks: those of a step with drafts are not free in addition. P asks for what D kept
    even when it is gone."""
    cfg = cluster.engine(engine.name)
    idle = [r for r in engine.requests if r.status in (WAITING, PREEMPTED) and not r.tables]
    spare = len(engine.free) - _of_step(cfg)
    idle = [r for r in idle if reserved_blocks(cfg, len(r.tokens)) > spare]
    lost = {t.request for t in state.transfers if t.phase == Phase.LOST}
    others = [r for r in engine.requests if r.id not in lost]
    if any(b != NULL for r in others for table in r.tables for b in table):
        return False
    if engine.name == cluster.prefill.name:
        turns = [cluster.job(r.id).follows for r in idle]
        return any(turn and state.transfer(turn + REVERSE) is not None for turn in turns)
    offered = {t.request for t in state.transfers if t.phase in (Phase.OFFERED, Phase.AWAITED)}
    return any(r.id in offered for r in idle)


def _of_step(cfg: EngineConfig) -> int:
    """The most blocks that a step with drafts takes: of its tokens and those ahead of them."""
    tokens = 1 + 2 * cfg.drafts
    return sum(1 + int(counts.blocks_for_tokens(tokens, group.block_size)) for group in cfg.groups)


DEVIATION = Deviation(
    name="load_keeps_room_for_drafts",
    says="an engine with a drafter never begins a load that needs the last blocks of the pool",
    signatures=HANGS,
    at_work=at_work,
)
