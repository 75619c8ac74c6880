"""Tokens that nothing brings are counted as computed, and a request then reads in their place what
the blocks held before (vllm#37310, vllm#44526)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.events import Schedule
from kvproof.model.phases import Phase, before
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.step import Admission, Step

OPEN = before(Schedule)
"""Phases of a transfer in which its receiver may begin to load."""


def _offered(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Tokens that can be brought to a request, from its first one on."""
    cfg, tokens = cluster.engine(admission.engine), admission.tokens
    if cfg.store:
        stored = step.before.engine(cfg.name).stored
        return max((len(p) for p in stored if tokens.startswith(p)), default=0)
    job = cluster.job(admission.request)
    name = admission.request if cfg.role == "decode" else job.follows + REVERSE
    transfer = step.before.transfer(name)
    if transfer is None or transfer.phase not in OPEN:
        return 0
    return len(tokens) if transfer.phase == Phase.AWAITED else transfer.tokens


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """A request loads no more than the other side, or its store, has for it."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    for admission in step.effects.admissions:
        if not admission.external:
            continue
        offered = _offered(cluster, step, admission)
        if admission.hit + admission.external > offered:
            yield because(
                f"{offered} tokens of {admission.request} can be brought to {admission.engine}",
                f"it hits {admission.hit} and loads {admission.external} after them",
                engine=admission.engine,
                request=admission.request,
            )


GUARD = Guard(
    id="load_is_offered",
    name="a request loads only tokens that the other side, or its store, offers",
    part="connector",
    severity=Severity.WRONG_TOKENS,
    check=check,
)
