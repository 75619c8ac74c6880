"""A user changes the weights of a model and resets the prefix cache. An entry that stays in the
cache holds KV of the old weights (compare vllm#57727). Later prompts hit it, and nothing reports
the mistake."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """A reset leaves no cache entry, or it is refused and changes nothing. A reset that preempts
    the running requests is never refused, and no request keeps tokens that were computed before
    it."""
    event = step.event
    if not isinstance(event, ResetPrefixCache | ResetRunning):
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    refused = isinstance(event, ResetPrefixCache) and not step.effects.resets and after == before
    if after.cached and not refused:
        yield because(
            reason("was_reset", "the cache of {engine} was reset"),
            reason(
                "keeps_entries",
                "the cache still has {entries} of {before} entries",
                entries=len(after.cached),
                before=len(before.cached),
            ),
            engine=event.engine,
        )
    for request in after.requests:
        if request.computed and not refused:
            yield because(
                reason("was_reset", "the cache of {engine} was reset"),
                reason(
                    "keeps_tokens",
                    "{request} keeps {computed} tokens that were computed before",
                    computed=request.computed,
                ),
                engine=event.engine,
                request=request.id,
            )


INVARIANT = Invariant(
    id="reset_is_whole",
    name="a reset empties the cache, or it is refused and changes nothing",
    origin="vllm#57727",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.RESETS,),
    killed_by="reset_under_load",
)
