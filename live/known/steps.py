"""Sessions and overlapping steps: requests that are counted wrongly, or lost."""

from kvproof.live.known.facts import HANGS, after, concerned, failed_load, on_decode, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.known_finding import known_finding
from kvproof.model.state import MISQUEUED, PREEMPTED, WAITING, Request
from kvproof.model.step import Step


@known_finding(
    in_vllm="Scheduler._update_request_as_session",
    says="a session that got its next part is not counted, and its slot is needed twice",
    signatures=seen("worker_forgets_who_left", "Schedule"),
)
def continued_session_is_not_counted(cluster: Cluster, step: Step, about: About) -> bool:
    """A paused session counts against `max_num_seqs`. One that got its next part does not, until it
    is scheduled, although its model runner keeps a slot for it: another request is admitted before
    it.

    Cause: Sessions that wait with their blocks make the difference, and no request has left.
    """
    engine = after(step, about)
    continued = {r.id for r in engine.requests if r.tables and r.status == WAITING}
    others = [name for name in step.effects.places or () if name not in continued]
    return cluster.sessions and not about.request and len(others) <= _most(cluster, about)


def _most(cluster: Cluster, about: About) -> int:
    return cluster.engine(about.engine).max_requests


@known_finding(
    says="a session whose last token arrives after its preemption is in no queue",
    signatures=(
        seen("every_request_in_one_queue", "Complete")
        | seen("status_follows_the_event", "Complete")
        | HANGS
    ),
)
def late_end_loses_session(cluster: Cluster, step: Step, about: About) -> bool:
    """The last token of a session's answer arrives after the preemption of the session, and vLLM
    removes the session from all queues.

    Cause: With overlapping steps, a session is in no queue, or in several. Before this event it was
    preempted, or was lost already.
    """
    if not cluster.sessions or not any(e.overlaps for e in cluster.engines):
        return False
    known = request(step, about)
    lost = [r for e in step.after.engines for r in e.requests if r.status == MISQUEUED]
    late = {
        r.id for e in step.before.engines for r in e.requests if r.status in (PREEMPTED, MISQUEUED)
    }
    return any(each.id in late and known in (None, each) for each in lost)


@known_finding(
    says="after a failed load, the token of the next dispatched step is kept",
    signatures=(
        seen("no_token_of_a_failed_load", "Complete")
        | seen("placeholders_are_samples_in_flight", "Complete", "Submit", "Schedule")
        | seen("step_makes_progress", "Schedule")
        | HANGS
    ),
)
def poisoned_step_counts(cluster: Cluster, step: Step, about: About) -> bool:
    """A store failed to load the KV of a step, and the next step was already dispatched. vLLM keeps
    the token and the placeholder of the next step.

    Cause: A load failed in this event while a later step of its request was in flight. Or a request
    still has a placeholder from such a failure that no output will remove: it is never scheduled
    again, and others wait for its blocks.
    """
    if failed_load(step):
        return about.request == failed_load(step) and cluster.engine(about.engine).overlaps
    return step.after.failures > 0 and any(
        cluster.engine(engine.name).store
        and engine.placeholders(r.id) > 0
        and not engine.flights(r.id)
        and about.request in ("", r.id, *(each.id for each in engine.requests if not each.tables))
        for engine in step.after.engines
        for r in engine.requests
    )


@known_finding(
    in_vllm="NixlPushConnectorScheduler.update_state_after_alloc",
    says="a session that hit its first part, and is preempted, loads more tokens than P was sent",
    signatures=(
        seen("prefill_and_decode_agree", "Schedule", "Complete")
        | seen("load_is_offered", "Schedule")
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window", "mamba"))
    ),
)
def session_loads_more_than_sent(cluster: Cluster, step: Step, about: About) -> bool:
    """A session that hits all of its first part on D loads nothing, and D leaves the request for
    its prefill set. After a preemption D loads the whole prompt, and P has been sent the first
    part.

    Cause: A session that was preempted, or one that holds the block, has loaded more than P was
    sent.
    """
    if not (cluster.pushes and on_decode(cluster, about)):
        return False
    return any(_goes_beyond(cluster, each) for each in concerned(step, about))


def _goes_beyond(cluster: Cluster, session: Request) -> bool:
    """Whether a session has loaded more tokens than P computed: P computes the first part without
    its last token."""
    job, loaded = cluster.job(session.id), session.hit + session.external
    preempted = session.preemptions > 0 and session.external > 0
    return bool(job.parts) and preempted and loaded >= len(job.prompt)
