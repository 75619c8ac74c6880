"""What must be true of the KV events from which a router learns what is cached."""

from collections.abc import Iterable, Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds, holds_if, reason, release
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Complete
from kvproof.model.kv_events import Removed, Stored
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, Key
from kvproof.model.step import Step


def _tokens_are_of_the_blocks(engine: EngineConfig, report: Stored) -> Judged:
    """The tokens of a report, cut into blocks after its parent, give exactly the prefixes that it
    names."""
    ahead = engine.hash_lookahead_tokens
    size = engine.groups[report.group].block_size
    if any((len(prefix) - ahead) % size for prefix in report.prefixes):
        size = engine.hash_unit
    start = max(len(report.parent) - ahead, 0)
    whole = report.parent[:start] + report.tokens
    after = report.lookahead or ("",) * len(report.prefixes)
    ends = range(start + size, len(whole) + 1, size)
    right = tuple(map(str.__add__, (whole[:end] for end in ends), after))
    return holds_if(report.prefixes == right) or because(
        reason(
            "reports_stored",
            "{engine} reports {prefixes:listed} as stored in group {group}, in "
            "blocks of {size} tokens",
            prefixes=report.prefixes,
            size=size,
        ),
        reason(
            "reported_tokens",
            "the reported tokens are '{tokens}' after '{parent}'"
            + (", and {lookahead:listed} after each block" if ahead else ""),
            tokens=report.tokens,
            parent=report.parent,
            lookahead=report.lookahead,
        ),
        engine=engine.name,
        group=report.group,
    )


def _parent_is_known(engine: EngineConfig, report: Stored, known: Iterable[Key]) -> Judged:
    """The parent of a report was reported as cached before."""
    return holds_if(report.parent in {prefix for _, prefix in known}) or because(
        reason(
            "reports_stored_after",
            "{engine} reports blocks stored after '{parent}'",
            parent=report.parent,
        ),
        reason("parent_not_reported", "no event has reported this parent as cached"),
        engine=engine.name,
        group=report.group,
    )


@check(
    "a KV event carries the tokens of exactly the blocks that it names, and its parent is known",
    origin="vllm#44451",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.EVENT_TOKENS,),
)
def events_carry_their_tokens(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A `BlockStored` event carries block hashes and the tokens of these blocks. A router that
    computes its own hashes cuts the tokens into blocks and assigns the first block to the first
    hash. When vLLM skipped blocks of a Mamba group, the event carried the tokens of all blocks and
    the hashes of some, so the router assigned hashes to wrong tokens (vllm#44451). An event whose
    parent was never reported leaves a gap in the router's chain of hashes (vllm#58119).

    If hashes cover the token after a block, the event carries this token for each block too
    (vllm#50438). An event about a prefix that ends inside a block carries the tokens after the last
    prefix that has a hash.
    """
    if not step.effects.reports:
        return
    # Only an event of its own engine changes a cache; an event of a transfer does not.
    engine = cluster.engine(getattr(step.event, "engine", cluster.decode.name))
    known = set(step.before.engine(engine.name).ghost.mirror or ())
    for report in step.effects.reports:
        if isinstance(report, Stored):
            yield _tokens_are_of_the_blocks(engine, report)
            if report.parent:
                yield _parent_is_known(engine, report, known)
            known.update((report.group, prefix) for prefix in report.prefixes)
        elif isinstance(report, Removed):
            known.discard((report.group, report.prefix))
        else:
            known.clear()


@check(
    "replaying the KV events gives exactly the cached keys",
    origin="vllm#55092",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.EVENTS,),
)
def events_replay_to_the_cache(engine: Engine) -> Iterator[Judged]:
    """A router replays the KV events of an engine and sends each request to an engine that caches
    its prefix. Two blocks held the same prefix, one of them was evicted, and vLLM sent
    `BlockRemoved` (vllm#55092). The router then took the prefix for evicted, although the next
    request would hit it."""
    # Cannot be judged: an engine without KV events has no listener.
    if engine.reports is None:
        return
    believed, cached = set(engine.ghost.mirror), {key for key, blocks in engine.cached if blocks}
    yield holds(len(believed & cached))
    for group, prefix in sorted(cached - believed):
        yield because(
            reason("is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"),
            reason("reported_not_cached", "the replayed events report it as not cached"),
            engine=engine.name,
            group=group,
            prefix=prefix,
        )
    for group, prefix in sorted(believed - cached):
        yield because(
            reason(
                "reported_cached",
                "the replayed events of {engine} report prefix {prefix:quoted} of "
                "group {group} as cached",
            ),
            reason("not_cached", "it is not cached"),
            engine=engine.name,
            group=group,
            prefix=prefix,
        )


@check(
    "the KV events of a step are published with its output, and an idle engine keeps none back",
    origin="vllm.distributed.kv_events",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def events_are_published(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A router learns what is cached when events are published. An engine that becomes idle may
    take no further step for long, and until then the router sends requests elsewhere, or here for
    what is evicted. Only pairs are judged by this sentence."""
    cfg = cluster.engine(getattr(step.event, "engine", cluster.decode.name))
    engine = step.after.engine(cfg.name)
    output = isinstance(step.event, Complete)
    idle = not engine.requests and not engine.steps and engine.step is None
    # Cannot be judged: without events, and while the output of a step is still to come.
    if not cfg.kv_events or engine.dead or not (output or idle):
        return
    yield holds_if(cfg.name not in step.effects.unpublished) or because(
        reason("keeps_events", "{engine} keeps KV events back"),
        reason("output_has_come", "the output of its step has come")
        if output
        else reason("is_idle", "it has nothing more to do"),
        excuses=(
            release("events wait for the next output")
            if output
            else release("events outside a step wait for the next step"),
        ),
        engine=cfg.name,
    )
