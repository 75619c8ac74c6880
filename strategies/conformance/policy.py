"""Policy differences: a machine chose differently from the reference, and the spec permits both
choices.

The reference takes the same event from the state that was observed before the step. The reference
follows one of many permitted policies, so a difference is reported but is not a finding.
"""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.events import (
    Admit,
    Choice,
    Complete,
    Compute,
    Preempt,
    Schedule,
    bare,
    stimulus,
)
from kvproof.model.reference import apply as model
from kvproof.model.step import Step

KINDS = {
    "victim": "another request is preempted",
    "chunk": "chunks have other sizes",
    "order": "requests are served in another order",
    "hit": "a prefix hit has another length",
    "blocks": "other free blocks are taken",
    "cached": "blocks are cached at another time",
    "freed": "blocks are freed in another order",
    "other": "the reference could not choose from this state",
}
"""The kinds of policy difference, with their meaning."""


def differs(cluster: Cluster, step: Step) -> Iterator[str]:
    """The kinds of difference between the choices of a machine in this step and those of the
    reference from the same state. Only the first kind that explains the others is returned."""
    event = step.event
    if not isinstance(event, Schedule | Complete) or any(e.dead for e in step.after.engines):
        return
    try:
        own = model.apply(cluster, step.before, stimulus(event))
    except NotAllowed:
        yield "other"
        return
    ours, theirs = own.after.engine(event.engine), step.after.engine(event.engine)
    if isinstance(event, Schedule) and own.event != event:
        assert isinstance(own.event, Schedule)
        same = bare(own.event) == bare(event)
        yield "blocks" if same else _choice(own.event.chose or (), event.chose or ())
    elif ours.cached != theirs.cached:
        yield "cached"
    elif ours.free != theirs.free and {*ours.free} == {*theirs.free}:
        yield "freed"


def _choice(ours: tuple[Choice, ...], theirs: tuple[Choice, ...]) -> str:
    """The kind of the first difference between two lists of choices."""
    for one, other in zip(ours, theirs, strict=False):
        if one.request != other.request or type(one) is not type(other):
            victims = isinstance(one, Preempt) and isinstance(other, Preempt)
            return "victim" if victims else "order"
        if isinstance(one, Compute) and isinstance(other, Compute) and one.tokens != other.tokens:
            return "chunk"
        if isinstance(one, Admit) and isinstance(other, Admit) and one.local_hit != other.local_hit:
            return "hit"
    return "order"
