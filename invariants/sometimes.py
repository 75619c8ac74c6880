"""What a search must have met before its green means anything: no rule is tested where it never
applies.

Each entry is about one kind of event, so that a step is asked only what may be true of it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from kvproof.invariants.hits import longest
from kvproof.invariants.parties import coming_to, giver
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Abort,
    Compute,
    LeaseExpire,
    Preempt,
    Schedule,
    Submit,
    TransferFail,
)
from kvproof.model.state import LOADING, Request
from kvproof.model.step import Step

Seen: TypeAlias = Callable[[Cluster, Step, Any], bool]
"""Whether it happens in a step, whose event (the last argument) is of the entry's kind."""


class Sometimes(NamedTuple):
    """Something that must happen somewhere. `name` is a sentence; `kind` the event it is about."""

    id: str
    name: str
    kind: type
    seen: Seen


def _happens(_cluster: Cluster, _step: Step, _event: object) -> bool:
    return True


def _preempts(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    return any(isinstance(choice, Preempt) for choice in event.chose or ())


def _hits(cluster: Cluster, step: Step) -> Iterator[bool]:
    """For each admission with a hit, whether it is the longest that leaves a token to compute."""
    for admission in step.effects.admissions:
        if admission.hit:
            cfg = cluster.engine(admission.engine)
            known = len(admission.tokens)
            yield admission.hit == longest(cfg, known, known)


def _hits_partly(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return not all(_hits(cluster, step))


def _hits_fully(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(_hits(cluster, step))


def _evicts(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    before, after = step.before.engine(event.engine).cached, step.after.engine(event.engine).cached
    if before == after:
        return False
    kept = {(key, block) for key, blocks in after for block in blocks}
    return any((key, block) not in kept for key, blocks in before for block in blocks)


def _trims(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    for admission in step.effects.admissions:
        name = coming_to(cluster, admission.engine, admission.request)
        transfer = step.after.transfer(name) if admission.external else None
        if transfer is None:
            continue
        p = giver(cluster, name).engine
        for group, remote, (_, theirs) in zip(
            p.groups, transfer.remote, transfer.pairs, strict=False
        ):
            if group.attention and 0 < len(theirs) < len(remote) * p.physical_per_logical:
                return True
    return False


def _fills(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return bool(step.effects.admissions) and not step.after.engine(event.engine).free


def _computed(step: Step, event: Schedule) -> Iterator[Request]:
    """The requests that computed tokens in this step, as they are after it."""
    engine = step.after.engine(event.engine)
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            yield engine.request(choice.request)


def _chunks(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return any(r.computed < len(r.prompt) for r in _computed(step, event))


def _keeps_junction(cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.after.engine(event.engine)
    for request in _computed(step, event):
        if request.shared_prefix_boundary and request.computed == request.shared_prefix_boundary:
            prefix = request.tokens[: request.shared_prefix_boundary]
            for index, group in enumerate(cluster.engine(event.engine).groups):
                if group.aligned and engine.blocks_for((index, prefix)):
                    return True
    return False


def _aborts_load(_cluster: Cluster, step: Step, event: Abort) -> bool:
    request = step.before.engine(event.engine).find(event.request)
    return request is not None and request.status == LOADING


def _truncates(_cluster: Cluster, step: Step, event: Submit) -> bool:
    request = step.after.engine(event.engine).find(event.request)
    return request is not None and len(request.prompt) < request.submitted_prompt_tokens


_ALL = (
    Sometimes("preemption", "a running request loses its blocks to another", Schedule, _preempts),
    Sometimes("partial_hit", "a prompt finds a part of what could hit", Schedule, _hits_partly),
    Sometimes("full_hit", "a prompt finds all that could hit", Schedule, _hits_fully),
    Sometimes("eviction", "a step takes a block that was cached", Schedule, _evicts),
    Sometimes("trimmed_transfer", "P offers more blocks than D reads", Schedule, _trims),
    Sometimes("pool_filled", "an admission leaves no block free", Schedule, _fills),
    Sometimes("chunked_prefill", "a step ends inside a prompt", Schedule, _chunks),
    Sometimes("failed_load", "a read fails", TransferFail, _happens),
    Sometimes("aborted_load", "a request is aborted while it loads", Abort, _aborts_load),
    Sometimes("lease_expiry", "P gives up waiting for D", LeaseExpire, _happens),
    Sometimes("junction_kept", "a state is cached where prompts part", Schedule, _keeps_junction),
    Sometimes("truncation", "P leaves the end of a prompt to D", Submit, _truncates),
)

SOMETIMES: dict[str, Sometimes] = {entry.id: entry for entry in _ALL}
"""All of them, by id. A new one is a predicate and a line above."""

_ABOUT = {kind: tuple(s for s in _ALL if s.kind is kind) for kind in {s.kind for s in _ALL}}


def reached_goals(cluster: Cluster, step: Step) -> Iterator[str]:
    """The ids of what happens in a step, in the order of SOMETIMES."""
    for entry in _ABOUT.get(type(step.event), ()):
        if entry.seen(cluster, step, step.event):
            yield entry.id
