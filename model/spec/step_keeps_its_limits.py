"""A step is a batch of bounded size: `max_num_batched_tokens` tokens, `max_num_seqs` requests. The
buffers of the worker have room for no more. A request is in it once, with tokens that are known, or
that steps in flight sample, or that a drafter proposes (vllm#46974, vllm#53130)."""

from collections import Counter
from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import PAUSED, RUNNING
from kvproof.model.step import Step


def batch(event: Schedule) -> Counter[str]:
    """The tokens of each request of a step. One that is preempted in the step is taken out."""
    tokens: Counter[str] = Counter()
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            tokens[choice.request] += choice.tokens
        elif isinstance(choice, Preempt):
            tokens.pop(choice.request, None)
    return tokens


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The batch is no larger than the engine allows, and no request gets more than it has."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before, after = engines
    cfg, tokens = cluster.engine(after.name), batch(step.event)
    if tokens.total() > cfg.chunk_tokens:
        yield because(
            f"a step of {after.name} has at most {cfg.chunk_tokens} tokens",
            f"{tokens.total()} are scheduled",
            engine=after.name,
        )
    places = [r.id for r in after.requests if r.status in (RUNNING, PAUSED)]
    if len(places) > cfg.max_requests and set(after.running) - set(before.running):
        yield because(
            f"{after.name} runs at most {cfg.max_requests} requests at a time",
            f"{', '.join(places)} run, or are sessions that keep their place",
            engine=after.name,
        )
    for name, count in tokens.items():
        request = after.find(name)
        if request is None:
            continue
        most = len(request.tokens) + before.placeholders(name) + cfg.drafts
        if count < 1 or request.computed > most:
            yield because(
                f"{name} on {after.name} has {len(request.tokens)} tokens, "
                f"{before.placeholders(name)} more are being sampled, and a drafter proposes at "
                f"most {cfg.drafts}",
                f"{count} tokens are scheduled, up to token {request.computed}",
                engine=after.name,
                request=name,
            )


GUARD = Guard(
    id="step_keeps_its_limits",
    name="a step has no more tokens and requests than the engine allows, each request once",
    part="scheduler",
    severity=Severity.CRASH,
    check=check,
)
