"""What can be seen of vLLM after a statement, as Python expressions of the generated test."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproof.invariants.registry import INVARIANTS
from kvproof.live.reproducer.layout import literal
from kvproof.live.reproducer.pieces import NAMES
from kvproof.model.because import About
from kvproof.model.config import Cluster, Engine
from kvproof.model.finding import Finding

NO_BASE = object()
"""No value is right on every vLLM."""


class Fact(NamedTuple):
    """An expression, and what it is about. `kind` names what is looked at. `right` is the value
    that every vLLM without defects shows, where there is one."""

    source: str
    kind: str
    engine: str
    request: str = ""
    group: int | None = None
    block: int | None = None
    right: Any = NO_BASE
    of_step: bool = False


SUBJECTS: dict[str, tuple[str, ...]] = {
    "all_blocks_return": ("lost", "free"),
    "cached_block_holds_its_key": ("read", "scheduled", "computed", "copies", "cached block"),
    "cached_key_can_be_hit": ("cached block", "prefixes", "cached"),
    "counter_counts_only_cached": ("counted",),
    "drafter_holds_its_key": ("counted", "cached block"),
    "events_carry_their_tokens": ("events",),
    "events_replay_to_the_cache": ("mirror", "events"),
    "every_request_can_finish": ("present", "status"),
    "every_request_in_one_queue": ("queues", "status"),
    "hash_map_is_sound": ("cached block", "prefixes", "cached"),
    "hit_holds_in_every_group": ("hit", "computed", "table"),
    "hit_is_the_longest": ("hit", "computed"),
    "no_block_free_and_held": ("free and held", "holders", "is free"),
    "no_more_is_held_than_is_read": ("null", "blocks"),
    "null_block_is_nobody": ("null", "blocks"),
    "nothing_kept_for_nobody": ("read", "present", "free"),
    "nothing_reused_under_transfer": ("is free", "holders", "deferred", "references"),
    "offered_tokens_are_loaded": ("hit", "computed", "read"),
    "paired_lists_are_equal": ("read", "params"),
    "paired_offsets_are_equal": ("read", "params"),
    "placeholders_are_samples_in_flight": ("placeholders", "outputs"),
    "pool_adds_up": ("lost", "free"),
    "predicted_is_taken": ("predicted",),
    "priority_is_kept": ("scheduled", "status"),
    "references_are_exact": ("miscounted", "references"),
    "repeated_prompt_hits": ("hit", "computed"),
    "request_reads_its_own_prefix": ("hit", "computed", "holders", "is free", "read", "null"),
    "room_is_used": ("scheduled", "status"),
    "settled_frees": ("deferred", "free", "is free"),
    "state_read_is_state_at_computed": ("hit", "computed", "scheduled", "read", "null"),
    "step_makes_progress": ("present", "status", "scheduled"),
    "table_fits_its_tokens": ("blocks", "null"),
    "writer_is_alone": ("holders", "is free", "null", "blocks"),
}
"""The kinds of facts that an invariant speaks of, the first is the nearest."""

ORDER = (
    *("free and held", "miscounted", "predicted", "queues", "present", "hit", "scheduled"),
    *("computed", "status", "outputs", "placeholders", "blocks", "null", "counted", "read"),
    *("params", "copies", "events", "mirror", "deferred", "is free", "holders", "cached block"),
    *("references", "free", "prefixes", "cached", "lost", "table"),
)
"""All kinds, in the order of preference: what a request shows comes first, block ids last."""


def facts(cluster: Cluster, finding: Finding) -> Iterator[Fact]:
    """All facts that are looked at after each statement."""
    for engine in cluster.engines:
        yield from _of_pool(engine, finding.about)
        yield from _of_step(cluster, engine)
        if engine.kv_events:
            yield from _of_events(engine)
        for job in cluster.jobs:
            yield from _of_request(engine, job.name, finding)


def _of_request(engine: Engine, name: str, finding: Finding) -> Iterator[Fact]:
    e, r = NAMES[engine.role], literal(name)
    request = f"{e}.requests[{r}]"
    plain = {
        "present": f"{r} in {e}.requests",
        "status": f"{request}.status.name",
        "computed": f"{request}.num_computed_tokens",
        "outputs": f"{request}.num_output_tokens",
        "hit": f"{request}.num_cached_tokens",
    }
    if engine.overlaps:
        plain["placeholders"] = f"{request}.num_output_placeholders"
    for kind, source in plain.items():
        yield Fact(source, kind, engine.name, name)
    lost = finding.invariant == "every_request_in_one_queue" and finding.about.request == name
    right = 1 if lost else NO_BASE
    yield Fact(f"num_queues({e}, {r})", "queues", engine.name, name, right=right)
    if finding.invariant == "predicted_is_taken":
        source = f"mispredicted({allocations(engine)}, {r})"
        yield Fact(source, "predicted", engine.name, name, right=None)
    if engine.role == "prefill":
        for key in ("remote_num_tokens", "remote_block_ids"):
            yield Fact(f'params[{r}]["{key}"]', "params", engine.name, name)
    for group in range(len(engine.groups)):
        table = f"table({e}, {r}, {group})"
        place = engine.name, name, group
        yield Fact(f"len({table})", "blocks", *place)
        yield Fact(f"[i for i, block in enumerate({table}) if block]", "null", *place)
        yield Fact(table, "table", *place)
        yield Fact(f"num_cached_blocks({e}, {r}, {group})", "counted", *place)


def _of_pool(engine: Engine, about: About) -> Iterator[Fact]:
    e = NAMES[engine.role]
    yield Fact(f"free_and_held({e})", "free and held", engine.name, right=[])
    yield Fact(f"miscounted({e})", "miscounted", engine.name, right=[])
    yield Fact(f"lost_blocks({e})", "lost", engine.name)
    yield Fact(f"num_free_blocks({e})", "free", engine.name)
    yield Fact(f"num_cached({e})", "cached", engine.name)
    yield Fact(f"num_prefixes({e})", "prefixes", engine.name)
    yield Fact(f"deferred({e})", "deferred", engine.name)
    if about.engine == engine.name and about.block:
        yield from _of_block(engine, about.block)


def _of_block(engine: Engine, block: int) -> Iterator[Fact]:
    e = NAMES[engine.role]
    looks = {
        "is free": f"{block} in free_blocks({e})",
        "holders": f"holders({e}, {block})",
        "cached block": f"is_cached({e}, {block})",
        "references": f"ref_count({e}, {block})",
    }
    for kind, source in looks.items():
        yield Fact(source, kind, engine.name, block=block)


def _of_step(cluster: Cluster, engine: Engine) -> Iterator[Fact]:
    output = "step.output"
    for job in cluster.jobs:
        source = f"{output}.num_scheduled_tokens.get({literal(job.name)})"
        yield Fact(source, "scheduled", engine.name, job.name, of_step=True)
    if engine.aligned_group:
        source = f'list(getattr({output}, "kv_cache_block_copies", None) or ())'
        yield Fact(source, "copies", engine.name, of_step=True)
    if not engine.connected:
        return
    peer = next(other for other in cluster.engines if other is not engine)
    own, other = engine.physical_per_logical, peer.physical_per_logical
    read = f"pairs({NAMES[engine.role]}, step, {own}, {other})"
    yield Fact(f"{read}", "read", engine.name, of_step=True)


def _of_events(engine: Engine) -> Iterator[Fact]:
    e = NAMES[engine.role]
    events = f"take_events({e}, {heard(engine)})"
    yield Fact(f"mirrored({events}) - num_prefixes({e})", "mirror", engine.name, right=0)
    yield Fact(f"described({events})", "events", engine.name)


def allocations(engine: Engine) -> str:
    """The variable with the numbers of blocks that an engine predicted and took."""
    return "allocations" if engine.role == "both" else f"{NAMES[engine.role]}_allocations"


def heard(engine: Engine) -> str:
    """The variable with the KV events of an engine."""
    return "heard" if engine.role == "both" else f"{NAMES[engine.role]}_heard"


def hangs(finding: Finding) -> bool:
    """Whether a finding says that something which must happen does not happen."""
    invariant = INVARIANTS.get(finding.invariant)
    return finding.invariant == "step_makes_progress" or (
        invariant is not None and invariant.kind == "eventually"
    )
