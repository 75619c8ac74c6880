"""A session that hits all of its first part on D loads nothing, and D leaves the request for its
prefill set. After a preemption D loads the whole prompt, and P has been sent the first part."""

from kvproof.live.deviations.facts import holders, on_decode, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import Request
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A session that was preempted, or one that holds the block, has loaded more than P was
    sent."""
    if not (cluster.pushes and on_decode(cluster, about)):
        return False
    known = request(step, about)
    concerned = [known] if known is not None else holders(step, about)
    return any(_goes_beyond(cluster, each) for each in concerned)


def _goes_beyond(cluster: Cluster, session: Request) -> bool:
    """P computes the first part but for its last token."""
    job, loaded = cluster.job(session.id), session.hit + session.external
    preempted = session.preemptions > 0 and session.external > 0
    return bool(job.parts) and preempted and loaded >= len(job.prompt)


DEVIATION = Deviation(
    name="session_loads_more_than_sent",
    in_vllm="NixlPushConnectorScheduler.update_state_after_alloc",
    says="a session that hit its first part, and is preempted, loads more tokens than P was sent",
    signatures=(
        seen("prefill_and_decode_agree", "Schedule", "Complete")
        | seen("load_is_offered", "Schedule")
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window", "mamba"))
    ),
    at_work=at_work,
)
