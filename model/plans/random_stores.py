"""A store for random plans of engines: a connector of the kit, and prompts that it loads."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from kvproof.model.plans.connector import Copies
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import Action, Reset, Send

STORES = (
    *("offloading", "offloading-small", "offloading-files"),
    *("simple-cpu", "lmcache", "multi-offloading-simple"),
)
"""Short names of connectors of the kit."""


def with_store(plan: EnginePlan, seed: int, stores: Sequence[str]) -> EnginePlan:
    """The plan with one of these stores; the plan itself where an engine of it takes none. Before
    half of its requests, the engine's own cache is reset, so that the store loads. No reset
    preempts requests: that ends loads of vLLM 0.32.0 (`findings/forced_reset_ends_offloading`).
    The kit accepts the drafts of a plan of its own."""
    if not (plan.plain and plan.actions):
        return plan
    r = Random(f"a store of {seed}")
    actions: list[Action] = []
    for action in plan.actions:
        if isinstance(action, Reset):
            action = replace(action, running=False)
        elif isinstance(action, Send) and r.random() < 0.5:
            actions.append(Reset(action.after))
            action = replace(action, after=r.choice((0, 0, 1, 3)))
        actions.append(action)
    return replace(
        plan,
        store=r.choice(stores),
        copies=Copies(r.random() < 0.5, r.choice((0, 0, 1, 2, 3))),
        recompute=r.random() < 0.5,
        actions=tuple(actions),
    )
