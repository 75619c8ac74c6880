"""The encoder cache counts tokens. If it frees an image twice, the worker gets more than fits; if
it never does, no request with an image is scheduled any more."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ItemsHeld, ItemsOwed
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The worker never has more than fits, and an idle engine counts what the worker has."""
    if isinstance(fact, ItemsHeld) and fact.tokens > fact.room:
        yield because(
            reason("room", "the encoder cache has room for {room} tokens", room=fact.room),
            reason("holds", "the worker has outputs for {tokens} tokens", tokens=fact.tokens),
        )
    elif isinstance(fact, ItemsOwed) and (fact.used or fact.taken != fact.there):
        yield because(
            reason(
                "worker_has",
                "the engine is idle, and the worker has outputs for {there} tokens",
                there=fact.there,
            ),
            reason(
                "counts_taken",
                "the encoder cache counts {taken} tokens as taken, {used} of them as in use",
                taken=fact.taken,
                used=fact.used,
            ),
        )


RULE = ConnectorRule(
    id="encoder_room_adds_up",
    name="the encoder cache counts what the worker has, and no more than fits",
    origin="EncoderCacheManager",
    severity=Severity.LEAK,
    counts="images read",
    otherwise="no request had an image",
    judge=judge,
)
