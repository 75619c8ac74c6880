"""Ingredients: what the cause of a known finding needs, with how a plan is without it.

A known finding explains a break only where its cause was at work. This is tried: without an
ingredient of the cause, the same plan breaks the check no longer. So an ingredient takes away as
little as it can. What leaves nothing for the check to judge shows nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from kvproof.connectors.plan import (
    AbortRequest,
    ConnectorPlan,
    Drain,
    Fail,
    Forget,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.gate.difference.workload import Loop, Play, Start
from kvproof.model.config import Group
from kvproof.model.errors import NotValid
from kvproof.model.plans.loop import LoopPlan
from kvproof.model.plans.startup import StartupPlan

Planned: TypeAlias = Play | Start | Loop
PlanT = TypeVar("PlanT", ConnectorPlan, StartupPlan, LoopPlan)

PLANS = {Play: ConnectorPlan, Start: StartupPlan, Loop: LoopPlan}
"""The type of the plan of each kind of run."""

INGREDIENTS: dict[str, Callable[[Any], Any]] = {}
"""The ingredients by name: each is a function that returns a plan without it."""

ROOM = 256
"""The number of blocks, or of tokens of an encoder cache, that no plan of a finding needs."""


def ingredient(without: Callable[[PlanT], PlanT]) -> Callable[[PlanT], PlanT]:
    """Add to the ingredients, by its name, the function that returns a plan without one. The type
    of its parameter says which plans can have it."""
    INGREDIENTS[without.__name__] = without
    return without


def without(name: str, run: Planned) -> Planned | None:
    """A run without the ingredient of this name; None where it has none of it."""
    function, kind = INGREDIENTS[name], PLANS[type(run)]
    if function.__annotations__["plan"] is not kind:
        return None
    plan = msgspec.convert(run.plan, kind)
    with suppress(NotValid):  # such an engine cannot be without it
        other = function(plan)
        return None if other == plan else replace(run, plan=msgspec.to_builtins(other))
    return None


# Of requests


def _requests(plan: ConnectorPlan, **fields: Any) -> ConnectorPlan:
    """The plan with these fields in each of its requests."""
    actions = (replace(a, **fields) if isinstance(a, SubmitRequest) else a for a in plan.actions)
    return replace(plan, actions=tuple(actions))


@ingredient
def prompt_logprobs(plan: ConnectorPlan) -> ConnectorPlan:
    """A request asks for the log-probabilities of its prompt, so it reads no cache."""
    return _requests(plan, computes_all=False)


@ingredient
def salt_or_adapter(plan: ConnectorPlan) -> ConnectorPlan:
    """A request has a cache salt or a LoRA adapter. The engine's own cache has nothing for it, and
    so it has nothing without."""
    return _requests(local_hits(plan), beside="") if _besides(plan) else plan


def _besides(plan: ConnectorPlan) -> bool:
    return any(isinstance(each, SubmitRequest) and each.beside for each in plan.actions)


@ingredient
def transfer_params(plan: ConnectorPlan) -> ConnectorPlan:
    """A request makes a demand on the connector (`kv_transfer_params`)."""
    return _requests(plan, asks=())


@ingredient
def begun_blocks(plan: ConnectorPlan) -> ConnectorPlan:
    """A prompt ends inside a block, and not at the end of one."""
    size = max(group.block_size for group in plan.engine.groups)
    actions = (
        replace(a, tokens=max(a.tokens // size * size, 1)) if isinstance(a, SubmitRequest) else a
        for a in plan.actions
    )
    return replace(plan, actions=tuple(actions))


# Of actions


def _left(plan: ConnectorPlan, *kinds: type) -> ConnectorPlan:
    """The plan without the actions of these kinds."""
    return replace(plan, actions=tuple(a for a in plan.actions if not isinstance(a, kinds)))


@ingredient
def aborts(plan: ConnectorPlan) -> ConnectorPlan:
    """A client goes away."""
    return _left(plan, AbortRequest)


@ingredient
def failures(plan: ConnectorPlan) -> ConnectorPlan:
    """What is behind the connector fails."""
    return _left(plan, Fail)


@ingredient
def forgets(plan: ConnectorPlan) -> ConnectorPlan:
    """What is behind the connector loses all that it has."""
    return _left(plan, Forget)


@ingredient
def local_hits(plan: ConnectorPlan) -> ConnectorPlan:
    """A request hits in the engine's own cache."""
    first = next((n for n, a in enumerate(plan.actions) if isinstance(a, SubmitRequest)), 0)
    actions: list[Any] = []
    for number, action in enumerate(plan.actions):
        if number > first and isinstance(action, SubmitRequest):
            actions += [Drain(), ResetCache()]
        actions.append(action)
    return replace(plan, actions=tuple(actions))


def _resets(plan: ConnectorPlan, **fields: Any) -> ConnectorPlan:
    actions = (replace(a, **fields) if isinstance(a, ResetCache) else a for a in plan.actions)
    return replace(plan, actions=tuple(actions))


@ingredient
def forced_resets(plan: ConnectorPlan) -> ConnectorPlan:
    """A reset of the prefix cache preempts running requests."""
    return _resets(plan, running=False)


@ingredient
def connector_resets(plan: ConnectorPlan) -> ConnectorPlan:
    """A reset of the prefix cache resets the connector's cache, too."""
    return _resets(plan, connector=False)


@ingredient
def resets_in_a_row(plan: ConnectorPlan) -> ConnectorPlan:
    """Two resets come without a step between them."""

    def apart() -> Iterator[Any]:
        for before, action in zip((None, *plan.actions), plan.actions, strict=False):
            if isinstance(before, ResetCache) and isinstance(action, ResetCache):
                yield RunSteps()
            yield action

    return replace(plan, actions=tuple(apart()))


# Of an engine


def _engine(plan: ConnectorPlan, **fields: Any) -> ConnectorPlan:
    return replace(plan, engine=replace(plan.engine, **fields))


@ingredient
def drafts(plan: ConnectorPlan) -> ConnectorPlan:
    """The engine has a drafter."""
    groups = tuple(replace(group, eagle=False) for group in plan.engine.groups)
    return replace(_engine(plan, drafts=0, groups=groups), accepted=0)


@ingredient
def tight_pool(plan: ConnectorPlan) -> ConnectorPlan:
    """The pool has few blocks."""
    return _engine(plan, num_blocks=max(plan.engine.num_blocks, ROOM))


@ingredient
def tight_encoder_cache(plan: ConnectorPlan) -> ConnectorPlan:
    """The encoder cache has room for few images."""
    return replace(plan, encoder_tokens=ROOM) if plan.encoder_tokens else plan


@ingredient
def chunked_prompts(plan: ConnectorPlan) -> ConnectorPlan:
    """A step computes a part of a prompt."""
    return _engine(plan, chunk_tokens=max(plan.engine.chunk_tokens, ROOM))


@ingredient
def hits_inside_blocks(plan: ConnectorPlan) -> ConnectorPlan:
    """A hit may end inside a block (`--prefix-match-unit`)."""
    return _engine(plan, match_unit=0)


@ingredient
def windows(plan: ConnectorPlan) -> ConnectorPlan:
    """A cache group is a sliding window, or chunked local attention."""
    full = (
        Group("full", g.block_size, eagle=g.eagle) if g.window else g for g in plan.engine.groups
    )
    return replace(_engine(plan, groups=tuple(full)), local=False)


@ingredient
def several_groups(plan: ConnectorPlan) -> ConnectorPlan:
    """The engine has several cache groups."""
    return _engine(plan, groups=plan.engine.groups[:1])


@ingredient
def local_attention(plan: ConnectorPlan) -> ConnectorPlan:
    """The windows of the engine are chunked local attention."""
    return replace(plan, local=False)


@ingredient
def kernel_blocks(plan: ConnectorPlan) -> ConnectorPlan:
    """The blocks of kernels are smaller than those of the engine."""
    return replace(plan, kernel_blocks=1)


@ingredient
def unequal_blocks(plan: ConnectorPlan) -> ConnectorPlan:
    """The blocks of a pair of engines have two sizes."""
    return replace(plan, narrow="")


@ingredient
def host_buffers(plan: ConnectorPlan) -> ConnectorPlan:
    """KV goes through buffers of the host."""
    return replace(plan, buffered=False)


@ingredient
def recomputed_loads(plan: ConnectorPlan) -> ConnectorPlan:
    """What a load has failed to bring is computed (`kv_load_failure_policy`)."""
    return replace(plan, load_failure="fail")


@ingredient
def second_runner(plan: ConnectorPlan) -> ConnectorPlan:
    """The connector is called in the order of vLLM's second model runner."""
    return replace(plan, first_runner=True)


# Of a start-up


def _layers(plan: StartupPlan, **fields: Any) -> StartupPlan:
    return replace(plan, layers=tuple(replace(each, **fields) for each in plan.layers))


@ingredient
def pipeline_stages(plan: StartupPlan) -> StartupPlan:
    """Workers have different layers (pipeline parallelism)."""
    return _layers(plan, stage=0)


@ingredient
def precisions(plan: StartupPlan) -> StartupPlan:
    """Layers keep values of different precisions."""
    return _layers(plan, bytes=4)


@ingredient
def sink_layers(plan: StartupPlan) -> StartupPlan:
    """A layer reads sinks."""
    kinds = (replace(each, kind="full") if each.kind == "sink" else each for each in plan.layers)
    return replace(plan, layers=tuple(kinds))


@ingredient
def no_hybrid_manager(plan: StartupPlan) -> StartupPlan:
    """The hybrid KV cache manager is off."""
    return replace(plan, hybrid=True)


@ingredient
def blocks_outermost(plan: StartupPlan) -> StartupPlan:
    """The outermost dimension of the KV cache is the block (`VLLM_KV_CACHE_LAYOUT`)."""
    return replace(plan, layout="LBNHC")
