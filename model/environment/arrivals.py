"""Requests that may arrive: new jobs, jobs that P has finished, follow-up turns, and the next part
of a session.

A session is a job whose prompt arrives in several parts; each part is answered before the next
arrives. Between two parts a session waits for its user and keeps its blocks. The last token of an
answer was sampled and, unless it is a draft, never computed: it is dropped, and the next part
follows the computed tokens. After the last part the user ends the session.

Source: `Scheduler._update_request_as_session` of vLLM V1. Not modelled: a part that arrives while
the part before is still being answered; vLLM queues it.
"""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.config.extra_keys import with_no_token_dropped
from kvproof.model.environment import pushes
from kvproof.model.events import Continue, Event, Submit
from kvproof.model.phases import Phase
from kvproof.model.state import PAUSED, SAMPLED, WAITING, Request, State


def arrival(cluster: config.Cluster, name: str, engine: str) -> Request:
    """The request of a job when it arrives at an engine. P samples only one token, whatever it is;
    D computes the answer."""
    job = cluster.job(name)
    role = cluster.engine(engine).role
    route = {"both": "local", "prefill": "to_decode", "decode": "from_prefill"}[role]
    limit = 1 if role == "prefill" else job.max_tokens
    prompt, stops = job.keyed_prompt, job.stops * (role != "prefill")
    size = len(prompt)
    return Request(name, WAITING, prompt, size, limit, route, embeds=job.embeds, stops=stops)


def answered(cluster: config.Cluster, state: State, name: str) -> bool:
    """Whether a job has ended on P and on D, so that the next turn may come."""
    p, d = cluster.prefill.name, cluster.decode.name
    if (d, name) in state.ended:
        return True
    coming = state.transfer(name) is not None or state.engine(d).find(name) is not None
    return (p, name) in state.ended and not coming


def open_for_more(cluster: config.Cluster, state: State) -> tuple[config.Job, ...]:
    """The jobs that are answered and that no other job follows yet."""
    if not cluster.follow_up_turns:
        return ()
    free = (job for job in cluster.jobs if cluster.follow_up(job.name) is None)
    return tuple(job for job in free if answered(cluster, state, job.name))


def may_come(cluster: config.Cluster, state: State, job: config.Job) -> bool:
    """Whether a job may arrive: it is no follow-up turn, or the turn before it is answered."""
    return not job.follows or answered(cluster, state, job.follows)


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The requests that may arrive now."""
    first, last = cluster.prefill.name, cluster.decode.name
    for job in cluster.jobs:
        new = (first, job.name) not in state.ended and not state.engine(first).find(job.name)
        if new and may_come(cluster, state, job):
            yield Submit(first, job.name)
        ready = state.phase(job.name) == Phase.OFFERED
        if cluster.pushes:
            ready = pushes.sent(cluster, state, job.name)
        if ready and not state.engine(last).find(job.name):
            yield Submit(last, job.name)
    for engine in state.engines if cluster.sessions else ():
        for request in engine.requests:
            if request.status == PAUSED:
                yield Continue(engine.name, request.id)


def next_part(request: Request, job: config.Job) -> str:
    """The next part of a session's prompt, empty after the last part."""
    sent = job.keyed_prompt
    for part in job.keyed_parts:
        if _typed(sent) == _typed(request.prompt):
            return part
        sent += part
    return ""


def _typed(prompt: str) -> str:
    return with_no_token_dropped(prompt).replace(SAMPLED, "")


def with_part(request: Request, part: str) -> Request:
    """A paused session after its next part arrived: the computed tokens are now part of its
    prompt."""
    kept = max(request.computed, len(request.tokens) - 1)  # none is computed after a preemption
    prompt = request.tokens[:kept] + part
    return request._replace(
        status=WAITING, prompt=prompt, submitted_prompt_tokens=len(prompt), output=""
    )
