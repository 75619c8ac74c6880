"""The tiers of a store on the scheduler's side, as vLLM's offloading has them, and the calls that
they receive. `on_request_finished` is the last call for a request, except for reports of transfers
in progress.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.connectors.device.replaced import found
from kvproof.model.facts.connectors import Fact, NeverBegun, NeverNotified, NotifiedTooEarly

OFFLOADING = "vllm.v1.kv_offload."

KINDS = {
    OFFLOADING + "base:OffloadingManager": ("prepare_load", "prepare_store"),
    OFFLOADING + "tiering.base:SecondaryTierManager": ("submit_load", "submit_store", "touch"),
}
"""The classes of tiers, and what is submitted to each."""

ENDED = "on_request_finished"

HOMES = ("vllm.distributed.kv_transfer.", OFFLOADING)
"""Where the parts of vLLM's connectors are defined."""


class NotifiedTier:
    """The notices that a tier received: the requests that have started, and those that have ended.
    vLLM's CPU tier below other tiers is never `notified` of a start."""

    def __init__(self, tier: Any) -> None:
        self.kind = type(tier).__name__
        self.begun: dict[str, None] = {}
        self.ended: set[str] = set()
        self.notified = False

    def owed(self) -> Iterator[NeverNotified]:
        """The requests of whose end the tier was not notified, as facts."""
        return (NeverNotified(name, self.kind) for name in self.begun)


def listen(connector: Any, facts: list[Fact], judged: Counter[str]) -> list[NotifiedTier]:
    """Record work that is submitted to the tiers of a connector for a request that has ended.
    Returns the notices that each tier receives from now on."""
    places = {found(place): calls for place, calls in KINDS.items()}
    kinds = {getattr(*place): calls for place, calls in places.items() if place is not None}
    noted = []
    for tier in _tiers(connector, tuple(kinds), set()):
        noted.append(NotifiedTier(tier))
        for kind, calls in kinds.items():
            if isinstance(tier, kind) and hasattr(tier, ENDED):  # older releases report no end
                for call in (*calls, ENDED, "on_new_request"):
                    setattr(tier, call, _noted(tier, call, noted[-1], facts, judged))
    return noted


def _noted(
    tier: Any, call: str, known: NotifiedTier, facts: list[Fact], judged: Counter[str]
) -> Callable[..., Any]:
    original = getattr(tier, call)

    def noted(*arguments: Any, **more: Any) -> Any:
        # One argument is the context of the request, or a job that has it.
        parts = [getattr(each, "req_context", each) for each in (*arguments, *more.values())]
        name = next(each.req_id for each in parts if hasattr(each, "req_id"))
        if call == ENDED:
            judged["notified ends of requests"] += 1
            if known.notified and name not in known.begun and name not in known.ended:
                facts.append(NeverBegun(name, known.kind))
            known.ended.add(name)
            known.begun.pop(name, None)
        elif call == "on_new_request":
            known.ended.discard(name)
            known.begun[name], known.notified = None, True
        elif name in known.ended:
            facts.append(NotifiedTooEarly(name, known.kind, call))
        return original(*arguments, **more)

    return noted


def _tiers(thing: Any, kinds: tuple[type, ...], seen: set[int]) -> Iterator[Any]:
    """The tiers among the parts of a connector, and their parts."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple):
        parts = thing
    else:
        if isinstance(thing, kinds):
            yield thing
        parts = list(getattr(thing, "__dict__", {}).values())
    for part in parts:
        own = isinstance(part, (list, tuple, *kinds))
        if own or type(part).__module__.startswith(HOMES):
            yield from _tiers(part, kinds, seen)
