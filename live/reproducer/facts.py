"""What can be seen of vLLM after a statement, as Python expressions of the generated test."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproof.invariants.registry import CHECKS
from kvproof.live.reproducer.layout import literal
from kvproof.live.reproducer.pieces import NAMES
from kvproof.model.because import About
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.finding import Finding
from kvproof.model.subjects import Subject

NO_BASE = object()
"""No value is right on every vLLM."""


class Fact(NamedTuple):
    """An expression, and what it is about. `kind` says what is looked at. `right` is the value
    that every vLLM without defects shows, where there is one."""

    source: str
    kind: Subject
    engine: str
    request: str = ""
    group: int | None = None
    block: int | None = None
    right: Any = NO_BASE
    of_step: bool = False


NEAREST = {subject: rank for rank, subject in enumerate(Subject)}
"""The order of preference among what a check does not speak of."""


def subjects(finding: Finding) -> tuple[Subject, ...]:
    """What the check of a finding speaks of, the nearest first."""
    check = CHECKS.get(finding.invariant)
    return () if check is None else check.subjects


def facts(cluster: Cluster, finding: Finding) -> Iterator[Fact]:
    """All facts that are looked at after each statement."""
    for engine in cluster.engines:
        yield from _of_pool(engine, finding.about)
        yield from _of_step(cluster, engine)
        if engine.kv_events:
            yield from _of_events(engine)
        for job in cluster.jobs:
            yield from _of_request(engine, job.name, finding)


def _of_request(engine: EngineConfig, name: str, finding: Finding) -> Iterator[Fact]:
    e, r = NAMES[engine.role], literal(name)
    request = f"{e}.requests[{r}]"
    plain = {
        Subject.PRESENT: f"{r} in {e}.requests",
        Subject.STATUS: f"{request}.status.name",
        Subject.COMPUTED: f"{request}.num_computed_tokens",
        Subject.OUTPUTS: f"{request}.num_output_tokens",
        Subject.HIT: f"{request}.num_cached_tokens",
    }
    if engine.overlaps:
        plain[Subject.PLACEHOLDERS] = f"{request}.num_output_placeholders"
    for kind, source in plain.items():
        yield Fact(source, kind, engine.name, name)
    lost = subjects(finding)[:1] == (Subject.QUEUES,) and finding.about.request == name
    right = 1 if lost else NO_BASE
    yield Fact(f"num_queues({e}, {r})", Subject.QUEUES, engine.name, name, right=right)
    if Subject.PREDICTED in subjects(finding):
        source = f"mispredicted({allocations(engine)}, {r})"
        yield Fact(source, Subject.PREDICTED, engine.name, name, right=None)
    if engine.role == "prefill":
        for key in ("remote_num_tokens", "remote_block_ids"):
            yield Fact(f'params[{r}]["{key}"]', Subject.PARAMS, engine.name, name)
    for group in range(len(engine.groups)):
        table = f"table({e}, {r}, {group})"
        place = engine.name, name, group
        yield Fact(f"len({table})", Subject.BLOCKS, *place)
        yield Fact(f"[i for i, block in enumerate({table}) if block]", Subject.REAL_BLOCKS, *place)
        yield Fact(table, Subject.TABLE, *place)
        yield Fact(f"num_cached_blocks({e}, {r}, {group})", Subject.COUNTED, *place)


def _of_pool(engine: EngineConfig, about: About) -> Iterator[Fact]:
    e = NAMES[engine.role]
    yield Fact(f"free_and_held({e})", Subject.FREE_AND_HELD, engine.name, right=[])
    yield Fact(f"miscounted({e})", Subject.MISCOUNTED, engine.name, right=[])
    yield Fact(f"lost_blocks({e})", Subject.LOST, engine.name)
    yield Fact(f"num_free_blocks({e})", Subject.FREE, engine.name)
    yield Fact(f"num_cached({e})", Subject.CACHED, engine.name)
    yield Fact(f"num_prefixes({e})", Subject.PREFIXES, engine.name)
    yield Fact(f"deferred({e})", Subject.DEFERRED, engine.name)
    if about.engine == engine.name and about.block:
        yield from _of_block(engine, about.block)


def _of_block(engine: EngineConfig, block: int) -> Iterator[Fact]:
    e = NAMES[engine.role]
    looks = {
        Subject.IS_FREE: f"{block} in free_blocks({e})",
        Subject.HOLDERS: f"holders({e}, {block})",
        Subject.CACHED_BLOCK: f"is_cached({e}, {block})",
        Subject.REFERENCES: f"ref_count({e}, {block})",
    }
    for kind, source in looks.items():
        yield Fact(source, kind, engine.name, block=block)


def _of_step(cluster: Cluster, engine: EngineConfig) -> Iterator[Fact]:
    output = "step.output"
    for job in cluster.jobs:
        source = f"{output}.num_scheduled_tokens.get({literal(job.name)})"
        yield Fact(source, Subject.SCHEDULED, engine.name, job.name, of_step=True)
    if engine.aligned_group:
        source = f'list(getattr({output}, "kv_cache_block_copies", None) or ())'
        yield Fact(source, Subject.COPIES, engine.name, of_step=True)
    if not engine.connected:
        return
    peer = next(other for other in cluster.engines if other is not engine)
    own, other = engine.physical_per_logical, peer.physical_per_logical
    read = f"pairs({NAMES[engine.role]}, step, {own}, {other})"
    yield Fact(f"{read}", Subject.READ, engine.name, of_step=True)


def _of_events(engine: EngineConfig) -> Iterator[Fact]:
    e = NAMES[engine.role]
    events = f"take_events({e}, {received_events(engine)})"
    yield Fact(f"mirrored({events}) - num_prefixes({e})", Subject.MIRROR, engine.name, right=0)
    yield Fact(f"described({events})", Subject.EVENTS, engine.name)


def allocations(engine: EngineConfig) -> str:
    """The variable with the numbers of blocks that an engine predicted and took."""
    return "allocations" if engine.role == "both" else f"{NAMES[engine.role]}_allocations"


def received_events(engine: EngineConfig) -> str:
    """The variable with the KV events of an engine."""
    return "received" if engine.role == "both" else f"{NAMES[engine.role]}_received"


def hangs(finding: Finding) -> bool:
    """Whether a finding says that something which must happen does not happen."""
    check = CHECKS.get(finding.invariant)
    eventually = check is not None and check.kind == "eventually"
    return eventually or subjects(finding)[:1] == (Subject.PRESENT,)
