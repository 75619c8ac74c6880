"""This module names the functions of vLLM in which an event happens, and those at fault."""

from collections.abc import Iterable, Iterator

from kvproof.model.events import Choice, Event, Schedule
from kvproof.model.faults.registry import FAULTS
from kvproof.model.known_finding import KnownFinding

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "Submit": ("Scheduler.add_request",),
    "Schedule": ("Scheduler.schedule",),
    "Admit": ("KVCacheManager.get_computed_blocks", "KVCacheManager.allocate_slots"),
    "FinishLoad": ("Scheduler._update_waiting_for_remote_kv",),
    "Compute": ("KVCacheManager.allocate_slots",),
    "Preempt": ("Scheduler._preempt_request",),
    "Release": ("KVCacheManager.allocate_slots",),
    "Complete": ("Scheduler.update_from_output",),
    "TransferDone": ("Scheduler._update_from_kv_xfer_finished",),
    "TransferFail": ("Scheduler.update_from_output",),
    "TransferLost": ("Scheduler.update_from_output",),
    "Abort": ("Scheduler.finish_requests",),
    "LeaseExpire": ("Scheduler._update_from_kv_xfer_finished",),
    "Continue": ("Scheduler._update_request_as_session",),
    "StrayReport": ("Scheduler._update_from_kv_xfer_finished",),
    "Evict": ("KVCacheManager.evict_blocks",),
    "ResetPrefixCache": ("Scheduler.reset_prefix_cache",),
    "ResetRunning": ("Scheduler.reset_prefix_cache",),
}
"""For each event and each choice of a scheduler, the functions of vLLM V1 that do it."""


def functions(event: Event, request: str = "") -> list[str]:
    """Return the functions of an event, the outermost first. If a step does anything with this
    request, only those functions count."""
    return list(dict.fromkeys(_names(event, request)))


def _names(event: Event, request: str) -> Iterator[str]:
    yield from FUNCTIONS[type(event).__name__]
    if isinstance(event, Schedule):
        for choice in _of(event.chose or (), request):
            yield from FUNCTIONS[type(choice).__name__]


def _of(choices: Iterable[Choice], request: str) -> list[Choice]:
    every = list(choices)
    return [each for each in every if each.request == request] or every


def at_fault(faults: Iterable[str], known: KnownFinding | None = None) -> list[str]:
    """Return the functions of vLLM in which these faults, and this known finding, are made."""
    names = [*faults, *([known.name] if known else ())]
    functions = [FAULTS[name].in_vllm for name in names if name in FAULTS]
    return list(dict.fromkeys(filter(None, [*functions, known.in_vllm if known else ""])))
