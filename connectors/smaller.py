"""Makes a plan that breaks a check smaller: fewer actions first, then simpler ones.

The candidates depend on the plan alone, and not on time, so the same seed gives the same plan.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import fields, replace

from kvproof.connectors.plan import ConnectorPlan, RunSteps, SubmitRequest

TRIES_MAX = 150
"""The largest number of smaller plans that are tried."""

PLAIN = ("copies", "stops", "clock_ahead", "options", "load_failure")
"""The fields of a plan whose defaults are tried."""

PLAIN_REQUEST = ("beside", "computes_all", "images", "asks", "turn", "answer", "max_tokens")
"""The fields of a request whose defaults are tried."""


def smaller(plan: ConnectorPlan, breaks: Callable[[ConnectorPlan], bool]) -> ConnectorPlan:
    """The smallest plan found for which `breaks` is true, beginning with a plan for which it is."""
    tried = {plan}
    best: ConnectorPlan | None = plan
    while best is not None:
        plan, best = best, None
        for each in _smaller_ones(plan):
            if len(tried) > TRIES_MAX:
                return plan
            if each not in tried:
                tried.add(each)
                if breaks(each):
                    best = each
                    break
    return plan


def _smaller_ones(plan: ConnectorPlan) -> Iterator[ConnectorPlan]:
    """Plans that are smaller in one way: without some of the actions, the longest runs of actions
    first; then with one field at its default, and with shorter prompts."""
    actions = plan.actions
    size = (1 << (len(actions) // 2).bit_length()) // 2  # a power of two, at most half of them
    while size:
        for at in range(0, len(actions), size):
            yield replace(plan, actions=(*actions[:at], *actions[at + size :]))
        size //= 2
    for name in PLAIN:
        yield from _plain(plan, name)
    for at, action in enumerate(actions):
        for other in _plainer(action):
            yield replace(plan, actions=(*actions[:at], other, *actions[at + 1 :]))


def _plainer(action: Any) -> Iterator[Any]:
    if isinstance(action, SubmitRequest):
        for name in PLAIN_REQUEST:
            yield from _plain(action, name)
        if action.tokens > 1:
            yield replace(action, tokens=action.tokens // 2)
            yield replace(action, tokens=action.tokens - 1)
    if isinstance(action, RunSteps):
        yield from _plain(action, "times")


def _plain(part: Any, name: str) -> Iterator[Any]:
    """The part with this field at its default, if it is not already."""
    default = next(each.default for each in fields(part) if each.name == name)
    if getattr(part, name) != default:
        yield replace(part, **{name: default})
