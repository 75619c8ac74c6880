"""Abstract steps: a step without its prompts, block ids and lengths.

Concrete steps have too many details for coverage: few runs contain exactly the same step. An
abstract step states what the step did to one request, or which choice it made for one request: the
event, the role of the engine, and the status before and after. Abstract steps are computed from the
step, so a new kind of event needs no code here.
"""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Choice, Compute, Schedule
from kvproof.model.state import Engine, Request
from kvproof.model.step import Step

GONE = "none"


def abstract_steps(cluster: Cluster, step: Step) -> Iterator[str]:
    """The abstract steps of a step, one line each; a line may occur twice."""
    event = type(step.event).__name__
    yield event
    for cfg in cluster.engines:
        before, after = step.before.engine(cfg.name), step.after.engine(cfg.name)
        role = f"{event} on {cfg.role}"
        if after.dead and not before.dead:
            yield f"{role}: the engine dies"
            continue
        if before is not after:
            yield from _statuses(before, after, role)
        if isinstance(step.event, Schedule) and step.event.engine == cfg.name:
            for choice in step.event.chose or ():
                yield f"{role}: {_choice(before, choice)}"
            if not step.event.chose:
                yield f"{role}: nothing to do"
            if any(block.key for block in before.blocks) and _evicts(before, after):
                yield f"{role}: takes a cached block"
    yield from _transfers(step, event)


def _statuses(before: Engine, after: Engine, role: str) -> Iterator[str]:
    names = dict.fromkeys(r.id for r in (*before.requests, *after.requests))
    for name in names:
        was, now = before.find(name), after.find(name)
        if was != now:
            yield f"{role}: {_status(was)} to {_status(now)}"


def _status(request: Request | None) -> str:
    if request is None:
        return GONE
    return request.status + (" with blocks" if any(request.tables) else "")


def _choice(before: Engine, choice: Choice) -> str:
    name = type(choice).__name__
    if isinstance(choice, Admit):
        found = [w for w, n in (("hit", choice.local_hit), ("load", choice.external)) if n]
        return f"{name} with {' and '.join(found) or 'nothing'}"
    request = before.request(choice.request)
    if isinstance(choice, Compute) and any(request.tables):
        end = request.computed + choice.tokens
        part = "all known tokens" if end >= len(request.tokens) else "a chunk"
        return f"{name} {'output' if request.output else 'prompt'}, {part}"
    return f"{name} {_status(request)}"


def _evicts(before: Engine, after: Engine) -> bool:
    taken = set(before.free) - set(after.free)
    return any(before.blocks[block].key for block in taken)


def _transfers(step: Step, event: str) -> Iterator[str]:
    names = dict.fromkeys(t.request for t in (*step.before.transfers, *step.after.transfers))
    for name in names:
        was, now = step.before.phase(name), step.after.phase(name)
        if was != now:
            yield f"{event}: transfer {was} to {now}"
