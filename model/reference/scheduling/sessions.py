"""What the scheduler does with a session between two parts of its prompt (see
`environment.arrivals`).

Sources: `Scheduler._handle_stopped_request`, `_update_request_as_session` and `add_request` of vLLM
V1.
"""

from kvproof.model import capacity, config
from kvproof.model.environment.arrivals import next_part, with_part
from kvproof.model.errors import NotAllowed
from kvproof.model.reference import in_flight
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import PAUSED, VOID, WAITING, Request, State


def paused(state: State, request: Request, engine: str) -> State:
    """The state after a part is answered: the session leaves the running queue and waits for its
    user. Where steps overlap, the last token may arrive after a preemption; then the session waits
    without blocks. Outputs of steps in flight, and accepted drafts after the answer, are
    discarded."""
    held = in_flight.invalidated(state.engine(engine), request.id, VOID)
    held = held.with_request(wait_for_user(request))
    running = tuple(r for r in held.running if r != request.id)
    return state.with_engine(held._replace(running=running))


def go_on(cluster: config.Cluster, state: State, engine: str, name: str) -> State:
    """Continue a session with its next part, or end it after the last part. A part that makes the
    session too long for the engine's pool is rejected, and the session ends."""
    request = state.engine(engine).request(name)
    if request.status != PAUSED:
        raise NotAllowed(f"{name} is {request.status} and its session cannot continue")
    part = next_part(request, cluster.job(name))
    cfg, longer = cluster.engine(engine), with_part(request, part)
    if not part or not capacity.can_hold(cfg, longer):
        return leave(cluster, cfg, state, request)
    return state.with_engine(state.engine(engine).with_request(longer))


def gives_way(cluster: config.Cluster, request: Request) -> bool:
    """Whether a waiting session may be preempted for another request. Where no request runs,
    waiting sessions must give up their blocks; otherwise several sessions could wait for each other
    forever (vllm#49439)."""
    return cluster.sessions and request.status == WAITING and bool(request.tables)


def wait_for_user(request: Request) -> Request:
    """A session that waits for its next part after an answer."""
    computed = min(request.computed, len(request.tokens) - 1)
    return request._replace(status=PAUSED, computed=computed, drafts=0)
