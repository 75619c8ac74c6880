"""If a sampled token is lost or kept twice, all later tokens are at wrong positions. If the prompt
of a request changes, the request computes another prompt (vllm#48245, vllm#45138).

The output of a step gives each request its sampled token and its accepted drafts before it, up to
the number of tokens that the request asked for. No other event gives tokens. The output of a
request that has ended, or that started again after a reset, is dropped.
"""

import unicodedata
from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Continue
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.state import VOID, Engine, Request
from kvproof.model.step import Step


def sampled(before: Engine, event: Complete, request: Request) -> int:
    """Number of tokens that the output of the oldest step gives to a request."""
    if event.failed == request.id:
        return 0
    tokens = event.accepted.get(request.id, 0) + 1
    if request.id in dict(before.step or ()):
        return tokens if request.computed >= len(request.tokens) else 0
    shares = [f for f in (before.steps[0] if before.steps else ()) if f.request == request.id]
    return tokens if any(f.samples and f.fate != VOID for f in shares) else 0


def _alike(one: str, other: str) -> bool:
    """Whether two letters are the same token of the same request. The mathematical ones say that a
    session has dropped a token before."""
    marked = any(unicodedata.name(each, "").startswith("MATHEMATICAL") for each in (one, other))
    plain = (unicodedata.normalize("NFKC", each) for each in (one, other))
    return one == other or (marked and len({*plain}) == 1)


def _keeps(was: str, now: str) -> bool:
    """Whether a prompt keeps its tokens; the last ones may be taken away."""
    return was.startswith(now) or (len(now) <= len(was) and all(map(_alike, was, now)))


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Outputs grow only by sampled tokens, and prompts do not change."""
    event = step.event
    for engines in alive(step):
        before, after = engines
        for name, was, now in requests(engines):
            goes_on = isinstance(event, Continue) and event.request == name
            if was is None or now is None or goes_on:
                continue
            added = 0
            if isinstance(event, Complete) and event.engine == before.name:
                added = sampled(before, event, was)
            expected = min(len(was.output) + added, was.max_tokens)
            if len(now.output) != expected:
                yield because(
                    reason(
                        "had_output",
                        "{request} on {engine} had {tokens} output tokens, and the "
                        "event adds {added}",
                        tokens=len(was.output),
                        added=added,
                    ),
                    reason("has_output", "it has {tokens} output tokens", tokens=len(now.output)),
                    engine=after.name,
                    request=name,
                )
            if not _keeps(was.prompt, now.prompt):
                yield because(
                    reason(
                        "had_prompt",
                        "{request} on {engine} had the prompt {prompt!r}",
                        prompt=was.prompt,
                    ),
                    reason("has_prompt", "its prompt is now {prompt!r}", prompt=now.prompt),
                    engine=after.name,
                    request=name,
                )


GUARD = Guard(
    id="output_is_what_was_sampled",
    name="a request gets each token that is sampled for it exactly once, and keeps its prompt",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.SAMPLED,),
)
