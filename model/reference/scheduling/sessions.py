"""Sessions: jobs whose prompt comes in several parts, each of which is answered before the next.

Between two parts a session waits for its user and keeps its blocks. Of an answer the last token was
sampled and never computed: it is dropped, and the next part follows what is left. When there is no
part left, the user says so, and the session ends.

Sources: `Scheduler._handle_stopped_request`, `_update_request_as_session` and `add_request` of vLLM
V1. Left open: parts that come while the one before is still being answered, which vLLM queues.
"""

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import capacity
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import PAUSED, VOID, WAITING, Request, State


def paused(state: State, engine: str, request: Request, rules: Rules) -> State:
    """A part is answered: the session leaves the running queue and waits for its user. Where steps
    overlap, the last token may come after a preemption: then it waits without blocks. What steps in
    flight still compute, and accepted drafts beyond the answer, are thrown away."""
    held = in_flight.invalidated(state.engine(engine), request.id, VOID)
    held = held.with_request(rules.wait_for_user(request))
    running = tuple(r for r in held.running if r != request.id)
    return state.with_engine(held._replace(running=running))


def next_part(job: config.Job, request: Request) -> str:
    """The part of the prompt that a session gets next, empty where it had them all."""
    length = len(job.prompt)
    for part in job.parts:
        if length == request.submitted_prompt_tokens:
            return part
        length += job.max_tokens - 1 + len(part)
    return ""


def with_part(request: Request, part: str) -> Request:
    """A paused session after its next part has come: what was computed is its prompt now."""
    prompt = request.tokens[:-1] + part
    return request._replace(
        status=WAITING, prompt=prompt, submitted_prompt_tokens=len(prompt), output=""
    )


def go_on(cluster: config.Cluster, rules: Rules, state: State, engine: str, name: str) -> State:
    """The next part of a session comes, or word that there is none. A part with which the session
    would be more than the engine could ever hold is rejected, and ends it."""
    request = state.engine(engine).request(name)
    if request.status != PAUSED:
        raise NotAllowed(f"{name} is {request.status} and its session goes on")
    part = next_part(cluster.job(name), request)
    cfg, longer = cluster.engine(engine), with_part(request, part)
    needed = capacity.blocks_to_the_end(cfg, longer)
    if not part or not rules.request_fits_pool(needed, cfg.num_blocks):
        return leave(cluster, cfg, state, request, rules)
    return state.with_engine(state.engine(engine).with_request(longer))


def gives_way(cluster: config.Cluster, request: Request) -> bool:
    """Whether a session that waits to be served may lose its blocks to another one. They must not
    be kept from all where nobody runs: several sessions could wait for each other (vllm#49439)."""
    return cluster.sessions and request.status == WAITING and bool(request.tables)


def wait_for_user(request: Request) -> Request:
    """A session whose part is answered, waiting for the next one."""
    computed = min(request.computed, len(request.tokens) - 1)
    return request._replace(status=PAUSED, computed=computed, drafts=0)
