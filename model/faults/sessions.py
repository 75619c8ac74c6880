"""Sessions, which wait for their user, and turns of a conversation that go on between P and D."""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.arithmetic.algebra import Num
from kvproof.model.arithmetic.counts import held_tokens_loaded
from kvproof.model.config.sides import incoming
from kvproof.model.faults.fault import fault
from kvproof.model.phases import Phase
from kvproof.model.reference.blocks import allocation
from kvproof.model.reference.scheduling.greedy import Greedy, serve_waiting
from kvproof.model.reference.scheduling.sessions import wait_for_user
from kvproof.model.reference.transfers.offers import loadable_from_decode
from kvproof.model.state import MISQUEUED, PREEMPTED, Request, State


@fault(
    "a session whose answer ends after its preemption is removed from every queue",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._handle_stopped_request",
    replaces="reference.scheduling.sessions:wait_for_user",
    breaks=("every_request_in_one_queue", "every_request_can_finish"),
    cluster="sessions-async",
)
def late_end_loses_session(request: Request) -> Request:
    """vLLM 0.32.0 with async scheduling, found by kvproof: the last token of an answer arrives
    after its session was preempted. vLLM puts the session into the waiting queue, to wait for
    its user. Then it removes all requests that ended during their preemption from this queue,
    and the session is in no queue."""
    paused = wait_for_user(request)
    return paused._replace(status=MISQUEUED) if request.status == PREEMPTED else paused


def lacks(work: Greedy, request: Request) -> int:
    """Number of blocks that a session needs for all its tokens and does not hold."""
    if not request.tables:
        return 0
    tokens = len(request.tokens)
    return allocation.predicted(work.cfg, work.engine, request, None, tokens)


def _priority(work: Greedy, request: Request) -> int:
    return work.cluster.job(request.id).priority


@fault(
    "a waiting session never gives up its blocks, although no request runs",
    origin="vllm#49439",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.greedy:serve_waiting",
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="sessions",
)
def waiting_sessions_hold_on(work: Greedy, waiting: Sequence[Request]) -> None:
    """vllm#49439: sessions keep their blocks while they wait, and vLLM does not preempt a
    waiting session. Two sessions that need more blocks than are free wait for each other. No
    request runs, and nothing ever changes. vLLM serves sessions in the order of their pauses,
    which the state does not record; here the order is the worst one. A chunk of a session might
    fit, but vLLM asks for room for the whole session before it continues."""
    if not work.cluster.sessions:
        serve_waiting(work, waiting)
        return
    worst = sorted(waiting, key=lambda r: (not r.tables, _priority(work, r), -lacks(work, r)))
    for request in worst:
        if lacks(work, request) > len(work.engine.free) or not work.serve(request):
            break


@fault(
    "P uses tokens that D computed after the end of its answer as tokens of the next turn",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.request_finished",
    replaces="arithmetic.counts:tokens_offered",
    breaks=("request_reads_its_own_prefix", "cached_block_holds_its_key"),
    cluster="turns-drafts",
    also_in=("turns-async",),
)
def held_goes_beyond_answer(computed: Num, settled: Num, known: Num) -> Num:  # noqa: ARG001
    """vLLM 0.32.0, found by kvproof on the live connector. D uses drafts, and its answer ends.
    In the reverse transfer, D offers all tokens that it has computed. These include accepted
    drafts after the end of the answer, which are cut off, and the tokens of a step in flight. P
    uses them as tokens of the next turn, which has other tokens at these positions."""
    return computed


OVER = (Phase.CLOSED, Phase.ABANDONED)
"""The phases of a reverse transfer that P has already requested."""


def on_prefill(cluster: config.Cluster, request: Request) -> bool:
    """P requests the blocks again, also those that it has loaded."""
    return cluster.follow_up_turns and request.route == "to_decode"


@fault(
    "P waits a second time for a reverse transfer, and no second read is started",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    replaces="reference.transfers.offers:loadable_from_decode",
    also_replaces={"reference.transfers.offers:asks_again": on_prefill},
    breaks="every_request_can_finish",
    cluster="turns-recomputing",
)
def held_is_loaded_again(cluster: config.Cluster, state: State, request: Request) -> int:
    """vLLM 0.32.0, found by kvproof on the live connector. The load of a reverse transfer
    failed, or P loaded it and preempted the request, or P loaded a prompt of one token, which it
    computes again. When P admits the request again, it counts D's tokens as external again and
    waits for them. The connector starts one transfer per request, so nothing is read or
    reported, and the request waits with its blocks for ever. In the same situation D marks the
    transfer as done and computes the tokens itself. Here the tokens count as if P had not
    requested them before."""
    name = incoming(cluster, cluster.prefill.name, request.id)
    transfer = state.transfer(name)
    if transfer is not None and transfer.phase in OVER:
        state = state.with_transfer(name, transfer._replace(phase=Phase.OFFERED))
    return loadable_from_decode(cluster, state, request)


@fault(
    "D's blocks are paired with P's blocks from the end of D's list, where D's answer is",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorWorker._read_blocks_for_req",
    replaces="reference.transfers.loads:cut_held_list",
    breaks="paired_offsets_are_equal",
    cluster="turns-shorter",
)
def held_list_ends_with_prompt(
    _first: int, held: tuple[int, ...], end: int
) -> tuple[int, tuple[int, ...]]:
    """vLLM 0.32.0, found by kvproof on the live connector. D has computed an answer, and the
    next turn submits the same prompt again, or a part of it. P asks for the tokens of its
    prompt, and the reverse transfer offers D's whole list. vLLM trims this list at its front to
    the length of P's list, as if P and D had stopped at the same token. P's blocks receive the
    KV of the answer, and P caches them as its prompt."""
    return end - len(held), held


@fault(
    "P uses the state and the window of all of D's tokens as those of its own prompt",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    replaces="arithmetic.counts:held_tokens_loaded",
    breaks=("prefill_and_decode_agree", "state_read_is_state_at_computed"),
    cluster="turns-state",
)
def held_state_is_of_the_prompt(held: Num, prompt: Num, _whole: bool) -> Num:
    """vLLM 0.32.0, found by kvproof on the live connector. D has computed at least as many
    tokens as the prompt of the next turn has. P counts its whole prompt as loaded and uses D's
    state as the state of these tokens. If D's state is of more tokens, it is the wrong state. If
    it is of as many, P computes its last token once more on top of it. D may already have freed
    the blocks that P's window needs. Here P loads as many tokens as its prompt has, as if every
    group were full attention."""
    return held_tokens_loaded(held, prompt, True)
