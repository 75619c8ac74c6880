"""Options that deployments set: how a request is admitted, and what happens to it on a producer."""

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.state import PREEMPTED, WAITING, Request
from kvproof.model.step import Step


def _lacks(cfg: EngineConfig, request: Request) -> int:
    """The blocks of attention groups that a request still needs for its tokens."""
    tables = request.tables or ((),) * len(cfg.groups)
    groups = ((g, t) for g, t in zip(cfg.groups, tables, strict=True) if g.attention)
    return sum(blocks_begun(len(request.tokens), g.block_size) - len(t) for g, t in groups)


def _by_first_chunk(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """Of an admitted request the first chunk fits, and the rest does not."""
    cfg, after = cluster.engine(event.engine), step.after.engine(event.engine)
    admitted = (after.find(admission.request) for admission in step.effects.admissions)
    return cfg.reserve_whole_prompt is False and any(
        r is not None and _lacks(cfg, r) > len(after.free) for r in admitted
    )


def _leaves_tokens(cluster: Cluster, _step: Step, event: Schedule) -> bool:
    limit = cluster.engine(event.engine).long_prefill_tokens
    tokens = [c.tokens for c in event.chose or () if isinstance(c, Compute)]
    return limit > 0 and limit in tokens and len(tokens) > 1


def _held_back(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """A request waits although the blocks for its tokens are free and the step has tokens left."""
    cfg, after = cluster.engine(event.engine), step.after.engine(event.engine)
    tokens = sum(c.tokens for c in event.chose or () if isinstance(c, Compute))
    waiting = [r for r in after.requests if r.status in (WAITING, PREEMPTED) and not r.tables]
    fits = any(_lacks(cfg, r) <= len(after.free) for r in waiting)
    return cfg.watermark_blocks > 0 and fits and 0 < tokens < cfg.chunk_tokens


def _transfer_dropped(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """A producer preempts a request whose output is in flight."""
    before = step.before.engine(event.engine)
    preempted = (c.request for c in event.chose or () if isinstance(c, Preempt))
    return cluster.engine(event.engine).produces and any(map(before.flights, preempted))


GOALS = (
    Goal(
        "admitted_by_first_chunk",
        "a request is admitted though its whole prompt does not fit",
        *(Schedule, _by_first_chunk, "first-chunk", "hybrid"),
        possible=on_some_engine(lambda engine: engine.reserve_whole_prompt is False),
    ),
    Goal(
        "long_prefill_cut",
        "a long prefill leaves tokens of a step for another request",
        *(Schedule, _leaves_tokens, "long-prefill", "full"),
        possible=on_some_engine(lambda engine: engine.long_prefill_tokens),
    ),
    Goal(
        "held_back_by_watermark",
        "a request waits because of the watermark",
        *(Schedule, _held_back, "watermark", "full"),
        possible=on_some_engine(lambda engine: engine.watermark_blocks),
    ),
    Goal(
        "producer_drops_output",
        "a producer preempts a request whose output is in flight",
        *(Schedule, _transfer_dropped, "pd-roles-preempting", "pd-async"),
        possible=on_some_engine(lambda engine: engine.produces and engine.overlaps),
    ),
)
