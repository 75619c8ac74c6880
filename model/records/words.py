"""An event of a record in one readable line."""

from collections.abc import Iterator, Mapping

from kvproof.model.records.lines import RecordedEvent

NAMED_MAX = 8
"""The largest number of requests of a step that are named; the others are only counted."""


def described(event: RecordedEvent) -> str:
    """Describe an event in one line, without the blocks."""
    parts = "; ".join(_parts(event)) or "nothing"
    raised = f"; raised {event.raised}" if event.raised else ""
    return f"{event.event}: {parts}{raised}"


def _parts(event: RecordedEvent) -> Iterator[str]:
    if event.arrived is not None:
        yield f"{event.arrived.request} arrives with {event.arrived.prompt_tokens} tokens"
    if event.event == "schedule" and event.tokens:
        yield _counts("tokens to compute:", event.tokens)
    if event.event == "update_from_output" and event.tokens:
        yield f"output of {len(event.tokens)} request{'s' * (len(event.tokens) > 1)}"
    for each in event.admitted:
        loads = f" and {each.external} to load" if each.external else ""
        yield f"admits {each.request} with {each.hit} tokens hit{loads}"
    for lost in event.preempted:
        why = f" for {lost.needy}" if lost.needy else ""
        yield f"preempts {lost.request}{why}"
    for load in event.loads:
        blocks = sum(map(len, load.blocks))
        yield f"asks for {blocks} blocks of {load.request}"
    for offer in event.offers:
        yield f"offers {offer.tokens} tokens of {offer.request}"
    for words, names in (
        ("does not fit", event.released),
        ("goes on after its load", event.loaded),
        ("was received", event.received),
        ("was not received", event.failed),
        ("was sent", event.sent),
    ):
        if names:
            yield f"{_names(names)} {words}"
    if event.outputs:
        yield _counts("new tokens:", event.outputs)
    for name, why in event.ended.items():
        yield f"{name} ended ({why})"
    if event.event == "reset_prefix_cache":
        yield "done" if event.done else "not done, blocks are in use"
    if event.evicted:
        yield f"blocks {' '.join(map(str, event.evicted))}"


def _counts(what: str, counts: Mapping[str, int]) -> str:
    named = [f"{name} {count}" for name, count in list(counts.items())[:NAMED_MAX]]
    more = f" and {len(counts) - NAMED_MAX} more" if len(counts) > NAMED_MAX else ""
    return f"{what} {', '.join(named)}{more}"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"
