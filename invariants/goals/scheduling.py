"""The basic cases of a scheduler: full pools, preemptions, chunked prompts, freed blocks."""

from collections.abc import Iterator

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.state import Request
from kvproof.model.step import Step


def _preempts(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    return any(isinstance(choice, Preempt) for choice in event.chose or ())


def _fills(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return bool(step.effects.admissions) and not step.after.engine(event.engine).free


def _computed(step: Step, event: Schedule) -> Iterator[Request]:
    """The requests that computed tokens in this step, in their state after the step."""
    engine = step.after.engine(event.engine)
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            yield engine.request(choice.request)


def _chunks(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return any(r.computed < len(r.prompt) for r in _computed(step, event))


def _keeps_boundary(cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.after.engine(event.engine)
    for request in _computed(step, event):
        boundary = request.shared_prefix_boundary
        if boundary and request.computed == boundary:
            for index, group in enumerate(cluster.engine(event.engine).groups):
                if group.aligned and engine.blocks_for((index, request.tokens[:boundary])):
                    return True
    return False


def _leaves_behind(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    return any(isinstance(c, Compute) and any(c.freed) for c in event.chose or ())


_aligned = on_some_engine(lambda engine: engine.aligned_group and engine.prefix_caching)
_frees = on_some_engine(lambda engine: any(g.kind == "window" or g.aligned for g in engine.groups))

GOALS = (
    Goal(
        "preemption",
        "a running request loses its blocks to another",
        *(Schedule, _preempts, "window", "full"),
    ),
    Goal(
        "pool_filled",
        "an admission leaves no block free",
        *(Schedule, _fills, "full", "full-evicting"),
    ),
    Goal(
        "chunked_prefill",
        "a step ends inside a prompt",
        *(Schedule, _chunks, "hybrid-siblings", "full"),
    ),
    Goal(
        "shared_prefix_boundary_kept",
        "a state is cached at a shared prefix boundary",
        *(Schedule, _keeps_boundary, "hybrid-siblings", "full", _aligned),
    ),
    Goal(
        "left_behind",
        "a request frees blocks that its layers no longer read",
        *(Schedule, _leaves_behind, "window", "full", _frees),
    ),
)
