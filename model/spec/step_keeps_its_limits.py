"""A step is a batch of at most `max_num_batched_tokens` tokens and `max_num_seqs` requests, and the
buffers of the worker have no room for more. A request is in the batch once. Its tokens are known,
or steps in flight sample them, or a drafter proposes them (vllm#46974, vllm#53130). Beside other
requests it gets at most `long_prefill_token_threshold` tokens, so that it leaves tokens for
them."""

from collections import Counter
from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import PAUSED, PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step


def batch(event: Schedule) -> Counter[str]:
    """The tokens of each request of a step, without requests that the step preempts."""
    tokens: Counter[str] = Counter()
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            tokens[choice.request] += choice.tokens
        elif isinstance(choice, Preempt):
            tokens.pop(choice.request, None)
    return tokens


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The batch is not larger than the engine permits, and no request gets more tokens than it
    has."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before, after = engines
    cfg, tokens = cluster.engine(after.name), batch(step.event)
    if tokens.total() > cfg.chunk_tokens:
        yield because(
            reason(
                "tokens_of_a_step",
                "a step of {engine} may have {chunk_tokens} tokens",
                chunk_tokens=cfg.chunk_tokens,
            ),
            reason("tokens_scheduled", "{tokens} tokens are scheduled", tokens=tokens.total()),
            engine=after.name,
        )
    places = [r.id for r in after.requests if r.status in (RUNNING, PAUSED)]
    if len(places) > cfg.max_requests and set(after.running) - set(before.running):
        yield because(
            reason(
                "requests_at_a_time",
                "{engine} may run {max_requests} requests at a time",
                max_requests=cfg.max_requests,
            ),
            reason(
                "take_places",
                "{places:names} run, or are sessions that keep their place",
                places=places,
            ),
            engine=after.name,
        )
    others = sum(r.status in (WAITING, PREEMPTED, RUNNING) for r in before.requests) > 1
    for name, count in tokens.items():
        request = after.find(name)
        if request is None:
            continue
        if others and 0 < cfg.long_prefill_tokens < count:
            yield because(
                reason(
                    "tokens_beside_others",
                    "a request of {engine} beside others may get "
                    "{long_prefill_tokens} tokens in a step",
                    long_prefill_tokens=cfg.long_prefill_tokens,
                ),
                reason("gets", "{request} gets {count}", count=count),
                engine=after.name,
                request=name,
            )
        most = len(request.tokens) + before.placeholders(name) + cfg.drafts
        if count < 1 or request.computed > most:
            yield because(
                reason(
                    "has_tokens",
                    "{request} on {engine} has {known} tokens, steps in flight "
                    "sample {pending} more, and a drafter proposes at most {drafts}",
                    known=len(request.tokens),
                    pending=before.placeholders(name),
                    drafts=cfg.drafts,
                ),
                reason(
                    "scheduled_up_to",
                    "{count} tokens are scheduled, up to token {computed}",
                    count=count,
                    computed=request.computed,
                ),
                engine=after.name,
                request=name,
            )


GUARD = Guard(
    id="step_keeps_its_limits",
    name="a step has at most the permitted tokens and requests, and each request once",
    part="scheduler",
    severity=Severity.CRASH,
    check=check,
    needs=(Need.BATCH,),
)
