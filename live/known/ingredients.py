"""Ingredients: what the cause of a known finding needs, with how a cluster or a plan is without it.

A known finding explains a break only where its cause was at work. Where no step shows that, it is
tried: without an ingredient of the cause, the same run breaks the check no longer. So an ingredient
takes away as little as it can. What leaves nothing for the check to judge shows nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.errors import NotValid
from kvproof.model.known_finding import Without
from kvproof.model.plans.connector import (
    AbortRequest,
    ConnectorPlan,
    Drain,
    Fail,
    Forget,
    ResetCache,
    RunSteps,
    Stand,
    SubmitRequest,
)
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import Cancel, More, Pause, Reset, Send, Sleep, Stop, Wake

T = TypeVar("T")
Change = Callable[[Any], Any]
"""Returns the same cluster or plan without an ingredient."""

ROOM = 256
"""The number of blocks, or of tokens of an encoder cache, that no plan of a finding needs."""


def without(name: str, of: T) -> T | None:
    """A cluster or a plan without the ingredient of this name; None where it has none of it, or
    where it cannot be without it."""
    change = INGREDIENTS[type(of)].get(name)
    with suppress(NotValid):  # such an engine cannot be without it
        other: T = of if change is None else change(of)
        return None if other == of else other
    return None


def needs(*names: str) -> tuple[Without, ...]:
    """The ingredients of these names, of the cause of a finding of a cluster."""
    return tuple(partial(without, name) for name in names)


# Changes of a cluster


def _decode(**fields: Any) -> Change:
    """D with these fields."""

    def change(cluster: Cluster) -> Cluster:
        name = cluster.decode.name
        engines = (replace(e, **fields) if e.name == name else e for e in cluster.engines)
        return replace(cluster, engines=tuple(engines))

    return change


def _with_blocks_of_one_size(cluster: Cluster) -> Cluster:
    size = max(group.block_size for cfg in cluster.engines for group in cfg.groups)
    return replace(cluster, engines=tuple(_with_blocks_of(size, each) for each in cluster.engines))


def _with_blocks_of(size: int, cfg: EngineConfig) -> EngineConfig:
    """The engine with blocks of this size alone, where a chunk has room for one of them."""
    return replace(
        cfg,
        groups=tuple(replace(each, block_size=size) for each in cfg.groups),
        chunk_tokens=max(cfg.chunk_tokens, size),
        match_unit=0,
        prefix_checkpoint=False,
        physical_per_logical=1,
    )


def _with_kernel_blocks_of_prefill(cluster: Cluster) -> Cluster:
    """D has the kernel blocks of P, and room for as many tokens as before."""
    prefill, blocks = cluster.prefill, cluster.decode.num_blocks
    widest = max(group.block_size for group in cluster.decode.groups)
    narrowest = min(group.block_size for group in prefill.groups)
    change = _decode(
        groups=prefill.groups,
        physical_per_logical=prefill.physical_per_logical,
        num_blocks=blocks * max(widest // narrowest, 1),
    )
    return change(cluster)  # type: ignore[no-any-return]


# Changes of a plan for a connector


def _plan(**fields: Any) -> Change:
    """The plan with these fields."""
    return lambda plan: replace(plan, **fields)


def _engine(**fields: Any) -> Change:
    """The plan for an engine with these fields."""
    return lambda plan: replace(plan, engine=replace(plan.engine, **fields))


def _room(of: str) -> Change:
    """The plan for an engine that has at least `ROOM` of this."""
    return lambda plan: _engine(**{of: max(getattr(plan.engine, of), ROOM)})(plan)


def _changed(kind: Any, change: Change, of: str = "actions") -> Change:
    """The plan with this change of each of its actions of a kind, or of each part that it has in
    the field `of`. A part that becomes None is left out."""

    def changed(plan: Any) -> Any:
        parts = (change(e) if isinstance(e, kind) else e for e in getattr(plan, of))
        return replace(plan, **{of: tuple(each for each in parts if each is not None)})

    return changed


def _each(kind: Any, **fields: Any) -> Change:
    """The plan with these fields in each of its actions of this kind."""
    return _changed(kind, lambda action: replace(action, **fields))


def _leave_out(kind: Any) -> Change:
    """The plan without its actions of this kind."""
    return _changed(kind, lambda _: None)


def _with_room_for_images(plan: ConnectorPlan) -> ConnectorPlan:
    return replace(plan, encoder_tokens=ROOM) if plan.encoder_tokens else plan


def _in_one_step(plan: ConnectorPlan) -> Any:
    """A step has room for all tokens of each prompt, and the encoder cache for all its images."""
    return _room("chunk_tokens")(_with_room_for_images(plan))


def _with_whole_blocks(plan: ConnectorPlan) -> Any:
    """Each prompt ends at the end of a block."""
    size = max(group.block_size for group in plan.engine.groups)

    def whole(request: SubmitRequest) -> SubmitRequest:
        return replace(request, tokens=max(request.tokens // size * size, 1))

    return _changed(SubmitRequest, whole)(plan)


def _with_windows_inside_blocks(plan: ConnectorPlan) -> Any:
    """Prompts are shorter where the window of what follows them would begin with a block, on P or
    on D."""
    parts = 2 if plan.narrow else 1
    windows = [(g.window - 1, g.block_size // parts) for g in plan.engine.groups if g.window]

    def inside(tokens: int) -> bool:
        return all(tokens <= reach or (tokens - reach) % size for reach, size in windows)

    def shorter(request: SubmitRequest) -> SubmitRequest:
        lengths = range(request.tokens, 0, -1)
        return replace(request, tokens=next(filter(inside, lengths), request.tokens))

    return _changed(SubmitRequest, shorter)(plan)


def _with_nothing_cached(plan: ConnectorPlan) -> ConnectorPlan:
    """The engine's own cache is empty when a request arrives."""
    first = next((n for n, a in enumerate(plan.actions) if isinstance(a, SubmitRequest)), 0)
    actions: list[Any] = []
    for number, action in enumerate(plan.actions):
        if number > first and isinstance(action, SubmitRequest):
            actions += [Drain(), ResetCache()]
        actions.append(action)
    return replace(plan, actions=tuple(actions))


def _with_no_cache(plan: ConnectorPlan) -> Any:
    """The engine has no cache of its own. Requests run beside each other as before."""
    return _engine(prefix_caching=False, match_unit=0)(plan)


def _with_equal_keys(plan: ConnectorPlan) -> ConnectorPlan:
    """No request has anything beside its tokens. The engine's own cache has nothing for one that
    has, so it has nothing here."""
    if not any(isinstance(each, SubmitRequest) and each.beside for each in plan.actions):
        return plan
    return _each(SubmitRequest, beside="")(_with_no_cache(plan))  # type: ignore[no-any-return]


def _with_equal_embeddings(plan: ConnectorPlan) -> ConnectorPlan:
    """All prompts with embeddings have those of the first one, each at its positions, and use them.
    The engine's own cache has nothing, so that they are loaded as before."""
    given = [each for each in plan.actions if isinstance(each, SubmitRequest) and each.rows]
    if not given:
        return plan

    def of_first(request: SubmitRequest) -> SubmitRequest:
        if not request.rows:
            return request
        used = _with_its_rows_used(request)
        return replace(used, family=given[0].family, trunk=given[0].trunk)

    return _changed(SubmitRequest, of_first)(_with_no_cache(plan))  # type: ignore[no-any-return]


def _with_its_rows_used(request: SubmitRequest) -> SubmitRequest:
    return replace(request, rows=replace(request.rows, used=True)) if request.rows else request


def _with_a_step_between_resets(plan: ConnectorPlan) -> ConnectorPlan:
    def apart() -> Iterator[Any]:
        stepped = True
        for action in plan.actions:
            if isinstance(action, ResetCache):
                if not stepped:
                    yield RunSteps()
                stepped = False
            stepped = stepped or isinstance(action, RunSteps | Drain)
            yield action

    return replace(plan, actions=tuple(apart()))


def _with_no_drafter(plan: ConnectorPlan) -> ConnectorPlan:
    groups = tuple(replace(group, eagle=False) for group in plan.engine.groups)
    return replace(plan, engine=replace(plan.engine, drafts=0, groups=groups), accepted=0)


def _with_full_attention(plan: ConnectorPlan) -> ConnectorPlan:
    """Full attention in place of windows. Where it is alone, no block is kept for a period."""
    groups = tuple(
        Group("full", g.block_size, eagle=g.eagle) if g.window else g for g in plan.engine.groups
    )
    period = plan.engine.retention if any(g.kind != "full" for g in groups) else None
    return replace(plan, engine=replace(plan.engine, groups=groups, retention=period), local=False)


# Changes of a start-up


def _layers(**fields: Any) -> Change:
    """The start-up with these fields in each of its layers."""
    return _changed(object, lambda layer: replace(layer, **fields), "layers")


def _with_no_sink(layer: Any) -> Any:
    return replace(layer, kind="full") if layer.kind == "sink" else layer


# Changes of a loop


def _with_no_emptied_cache(plan: EnginePlan) -> Any:
    """No client empties the caches of the engine: not by a reset, a pause, or a sleep."""
    return _each(Pause, clear=False)(_leave_out(Reset | Sleep | Wake)(plan))


def _with_no_abort_by_the_engine(plan: EnginePlan) -> Any:
    """No client lets the engine end its requests: a pause that would abort them waits for them, and
    the engine is not told to end."""

    def waits(action: Pause | Sleep) -> Pause | Sleep:
        return replace(action, mode="wait") if action.mode == "abort" else action

    return _changed(Pause | Sleep, waits, "actions")(_leave_out(Stop)(plan))


def _with_room_for_padding(plan: EnginePlan) -> EnginePlan:
    """A step has room for one request: its token, its drafts, and as many slots for drafts."""
    return replace(plan, chunk_tokens=max(plan.chunk_tokens, 1 + 2 * plan.drafts))


def _with_no_sessions(plan: EnginePlan) -> Any:
    """Each session is a request: no later parts come."""
    return _each(Send, stays=False)(_leave_out(More)(plan))


INGREDIENTS: dict[type, dict[str, Change]] = {
    Cluster: {
        # D has a drafter, or its steps overlap.
        "computing_ahead": _decode(drafts=0, steps_in_flight=1),
        # A lease may expire, and a transfer may be lost.
        "losses": lambda cluster: replace(cluster, losses=False),
        # Only with these may a hit end inside a block, and a state is cached where prompts part.
        "unequal_block_sizes": _with_blocks_of_one_size,
        # The blocks of P and D have different numbers of kernel blocks.
        "unequal_kernel_blocks": _with_kernel_blocks_of_prefill,
    },
    ConnectorPlan: {
        # Of requests. One that asks for the log-probabilities of its prompt reads no cache.
        "begun_blocks": _with_whole_blocks,
        "embeddings": _each(SubmitRequest, rows=None),
        "embeddings_not_used": _changed(SubmitRequest, _with_its_rows_used),
        "prompts_of_one_token": _changed(
            SubmitRequest, lambda each: replace(each, tokens=max(each.tokens, 2))
        ),
        "prompt_logprobs": _each(SubmitRequest, computes_all=False),
        "request_images": _each(SubmitRequest, images=()),
        "salt_or_adapter": _with_equal_keys,
        "unequal_embeddings": _with_equal_embeddings,
        "unequal_keys": _each(SubmitRequest, beside=""),  # in the engine's own cache, too
        "transfer_params": _each(SubmitRequest, asks=()),
        # Of what happens.
        "aborts": _leave_out(AbortRequest),
        "connector_resets": _each(ResetCache, connector=False),
        "failures": _leave_out(Fail),
        "forced_resets": _each(ResetCache, running=False),
        "forgets": _leave_out(Forget),
        "local_hits": _with_nothing_cached,
        "loops_that_stand": _leave_out(Stand),
        "resets_in_a_row": _with_a_step_between_resets,
        # Of an engine.
        "chunked_prompts": _in_one_step,
        "drafts": _with_no_drafter,
        "hits_inside_blocks": _engine(match_unit=0),
        "host_buffers": _plan(buffered=False),
        "kernel_blocks": _plan(kernel_blocks=1),
        "local_attention": _plan(local=False),
        "recomputed_loads": _plan(load_failure="fail"),
        "second_runner": _plan(first_runner=True),
        "several_groups": lambda plan: _engine(groups=plan.engine.groups[:1])(plan),
        "shared_steps": _engine(max_requests=1),
        "tight_encoder_cache": _with_room_for_images,
        "tight_pool": _room("num_blocks"),
        "unequal_blocks": _plan(narrow=""),  # of a pair of engines
        "unequal_ranks": _plan(prefill_ranks=0),
        "window_at_block": _with_windows_inside_blocks,
        "windows": _with_full_attention,
    },
    EnginePlan: {
        "aborts": _leave_out(Cancel),  # by clients
        "aborts_by_the_engine": _with_no_abort_by_the_engine,
        "blocks_outermost": _plan(layout="LBNHC"),  # `VLLM_KV_CACHE_LAYOUT`
        "budget_below_padding": _with_room_for_padding,
        "drafts": _plan(drafts=0, drafter="ngram", misses=0),
        "no_hybrid_manager": _plan(hybrid=True),
        "pipeline_stages": _layers(stage=0),
        "resets": _with_no_emptied_cache,
        "precisions": _layers(bytes=4),
        "sessions": _with_no_sessions,
        "sink_layers": _changed(object, _with_no_sink, "layers"),
    },
}
"""How a cluster, or a plan of each kind, is without an ingredient, by the name of that."""
