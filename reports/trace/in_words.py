"""This module says an event as a sentence, for a reader who does not know the names of events and
choices."""

from collections.abc import Callable
from typing import Any

from kvproof.model.counted import are, counted
from kvproof.model.events import Admit, Choice, Complete, Event, Preempt, Schedule

WORDS: dict[str, Callable[[Any], str]] = {
    "Submit": lambda e: f"{e.request} arrives at {e.engine}",
    "Schedule": lambda e: _step(e),
    "Admit": lambda c: _admitted(c),
    "FinishLoad": lambda c: f"{c.request} goes on after its load",
    "Compute": lambda c: f"{counted(c.tokens, 'token')} of {c.request} {are(c.tokens)} scheduled",
    "Preempt": lambda c: _preempted(c),
    "Release": lambda c: f"{c.request} does not fit, and frees blocks that it no longer needs",
    "Complete": lambda e: _output(e),
    "TransferDone": lambda e: f"the transfer of {e.request} is over, and both sides know it",
    "TransferFail": lambda e: f"the read of {e.request} has failed, and only the reader knows it",
    "TransferLost": lambda e: f"the end of the read of {e.request} will never be reported",
    "Abort": lambda e: f"the user aborts {e.request} on {e.engine}",
    "LeaseExpire": lambda e: f"the sender's lease on the blocks of {e.request} ends",
    "Continue": lambda e: (
        f"the next part of the session {e.request}, or its end, reaches {e.engine}"
    ),
    "StrayReport": lambda e: (
        f"a worker of {e.engine} reports a transfer of {e.request} that is over"
    ),
    "Evict": lambda e: f"the free block {e.block} of {e.engine} loses its cache entry",
    "ResetPrefixCache": lambda e: f"the prefix cache of the idle {e.engine} is emptied",
    "ResetRunning": lambda e: f"{e.engine} preempts all it runs, and its prefix cache is emptied",
}
"""What each event and each choice of a scheduler means."""


def in_words(event: Event | Choice) -> str:
    """Return the event as a sentence, without a capital letter and a full stop."""
    return WORDS[type(event).__name__](event)


def _step(event: Schedule) -> str:
    chosen = "; ".join(map(in_words, event.chose or ())) or "nothing is scheduled"
    return f"{event.engine} takes a step: {chosen}"


def _admitted(choice: Admit) -> str:
    hit = (
        f"with a hit of {counted(choice.local_hit, 'token')}"
        if choice.local_hit
        else "without a hit"
    )
    more = counted(choice.external, "token")
    loads = f", and {more} {are(choice.external)} to be loaded"
    return f"{choice.request} is admitted {hit}{loads if choice.external else ''}"


def _preempted(choice: Preempt) -> str:
    who = "it" if choice.needy == choice.request else choice.needy
    why = f", because {who} does not fit" if who else ""
    return f"{choice.request} is preempted{why}"


def _output(event: Complete) -> str:
    drafts = "".join(
        f"; {counted(count, 'draft')} of {name} {are(count)} accepted"
        for name, count in event.accepted.items()
    )
    failed = f"; the load of {event.failed} has failed" if event.failed else ""
    return f"the output of a step reaches {event.engine}{drafts}{failed}"
