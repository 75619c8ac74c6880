"""Questions about one step, from which the known findings say whether their cause is present."""

from kvproof.invariants.registry import CHECKS
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.config.sides import reverse_of
from kvproof.model.events import EVENTS, Complete
from kvproof.model.finding import Signature
from kvproof.model.state import Engine, Request, Transfer
from kvproof.model.step import Admission, Allocation, Step

GROUPS = ("full", "window", "mamba")


def seen(check: str, *events: str, on: tuple[str, ...] = ("",)) -> frozenset[Signature]:
    """The signatures of a check after events of these kinds, on groups of these kinds. Raises
    ValueError if nothing has one of these names."""
    for name, among in ((check, CHECKS), *((event, EVENTS) for event in events)):
        if name not in among:
            raise ValueError(
                f"No check and no kind of event is named {name!r}. Use its exact name."
            )
    return frozenset(Signature(check, event, kind) for event in events for kind in on)


HANGS = seen("every_request_can_finish", *EVENTS)
"""The signatures of runs that do not end, whatever their last event is."""


def after(step: Step, about: About) -> Engine:
    """The engine that a finding is about, after the step."""
    return step.after.engine(about.engine)


def request(step: Step, about: About) -> Request | None:
    """The request that a finding is about, after the step; if it is gone, before the step."""
    if not about.engine or not about.request:
        return None
    return after(step, about).find(about.request) or step.before.engine(about.engine).find(
        about.request
    )


def holders(step: Step, about: About) -> list[Request]:
    """The requests that hold the block of a finding, before or after the step."""
    engines = step.before.engine(about.engine), step.after.engine(about.engine)
    return [r for e in engines for r in e.requests if any(about.block in t for t in r.tables)]


def loaded(step: Step, about: About) -> bool:
    """Whether the request, or a request that holds the block, has loaded tokens through its
    connector."""
    return any(r.external for r in concerned(step, about))


def concerned(step: Step, about: About) -> list[Request]:
    """The request of a finding or, if it names none, the requests that hold its block."""
    known = request(step, about)
    return [known] if known is not None else holders(step, about)


def on_decode(cluster: Cluster, about: About) -> bool:
    """Whether a finding is about D."""
    return cluster.disaggregated and about.engine == cluster.decode.name


def on_prefill(cluster: Cluster, about: About) -> bool:
    """Whether a finding is about P."""
    return cluster.disaggregated and about.engine == cluster.prefill.name


def admission(step: Step, about: About) -> Admission | None:
    """The admission of the request that a finding is about, in this step."""
    for each in step.effects.admissions:
        if (each.engine, each.request) == (about.engine, about.request):
            return each
    return None


def allocation(step: Step, about: About) -> Allocation | None:
    """The last allocation of blocks for the request that a finding is about, in this step."""
    found = [a for a in step.effects.allocations if a[:2] == (about.engine, about.request)]
    return found[-1] if found else None


def failed_load(step: Step) -> str:
    """The request whose load this event reports as failed; empty if there is none."""
    return step.event.failed if isinstance(step.event, Complete) else ""


def offer(cluster: Cluster, step: Step, about: About) -> Transfer | None:
    """The transfer from which the request of a finding may load, before the step."""
    name = about.request
    if on_prefill(cluster, about) and name:
        name = reverse_of(cluster.job(about.request).follows)
    return step.before.transfer(name)


def covered(cluster: Cluster, found: Admission, tokens: int) -> bool:
    """Whether full attention alone can serve all full blocks of the first `tokens` tokens of an
    admitted prompt. Where a hit drops the last block of a match, one more is needed."""
    cfg, prompt = cluster.engine(found.engine), found.tokens + found.dropped
    keys = {key for key, blocks in found.cached if blocks}
    for index, group in enumerate(cfg.groups):
        reach = tokens + (group.block_size if cfg.drops_match(group) else 0)
        ends = range(group.block_size, reach + 1, group.block_size)
        lacks = any(e > len(prompt) or (index, prompt[:e]) not in keys for e in ends)
        if group.kind == "full" and lacks:
            return False
    return True
