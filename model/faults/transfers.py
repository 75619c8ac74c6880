"""KV transfers between P and D: the pairing of the two lists of blocks, leases, reports, and the
end of a request meanwhile."""

from kvproof.model import config
from kvproof.model.arithmetic.algebra import Num, if_, max_, min_
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, taker
from kvproof.model.counting_abstraction.transfer import TransferCounts, TransferSizes, done
from kvproof.model.faults.fault import fault
from kvproof.model.phases import Phase
from kvproof.model.reference.transfers.loads import declined, start_load
from kvproof.model.reference.transfers.offers import OPEN
from kvproof.model.reference.transfers.push import lease_expired
from kvproof.model.reference.transfers.request_ends import (
    producer_done,
    stray_report,
    transfer_done,
)
from kvproof.model.state import FAILED, LOADED, Death, Engine, Request, State, Transfer


@fault(
    "the lists are paired from the front, so a partial hit shifts every block",
    origin="vllm#48633",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    replaces="arithmetic.counts:trim",
    breaks=("paired_offsets_are_equal", "request_reads_its_own_prefix"),
    cluster="pd-full",
)
def front_trim(*lists: Num) -> tuple[Num, Num, Num, Num]:
    """vllm#48633: the push connector paired both lists from the front, up to the shorter length.
    When D had a hit, P's first blocks were written to D's last blocks."""
    _, local_slots, _, remote_slots, *_ = lists
    both_have = min_(local_slots, remote_slots)
    return (0, both_have, 0, both_have)


@fault(
    "the slice of the last 0 blocks of a list is the whole list",
    origin="vllm#42554",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    replaces="arithmetic.counts:trim",
    breaks="paired_lists_are_equal",
    cluster="pd-hitting",
    also_in=("pd-remnant",),
)
def last_zero_blocks_yield_all(*lists: Num) -> tuple[Num, Num, Num, Num]:
    """vllm#42554 (review, not fixed there): the slice `remote[-n:]` with n = 0 is the whole
    list. If D hits all tokens that P offers, D needs no block, and its empty lists are paired
    with all blocks of P. Here as many entries are taken from the end of P's list as D's list
    has, and all of them if it is empty."""
    _, local_slots, _, remote_slots, *_ = lists
    start = if_(local_slots == 0, 0, max_(remote_slots - local_slots, 0))
    return (0, local_slots, start, remote_slots)


@fault(
    "with unequal kernel blocks per block, the padding of P's last block is paired",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    replaces="arithmetic.counts:trim",
    breaks=(
        "paired_offsets_are_equal",
        "cached_block_holds_its_key",
        "request_reads_its_own_prefix",
    ),
    cluster="pd-ratio",
)
def end_trim_across_ratios(*lists: Num) -> tuple[Num, Num, Num, Num]:
    """vLLM 0.32.0, found by kvproof on the live connector. Without Mamba groups, vLLM trims P's
    list at its front to the length of D's list, without regard to the number of kernel blocks
    per block. If a block of P is wider than a block of D, the last entries of P's list are the
    padding of its last block. D's blocks are then filled from later tokens, with or without a
    hit. Here the last entries of P's list are taken if D's list is shorter, and otherwise the
    first ones of both."""
    _, local_slots, _, remote_slots, *_ = lists
    have = min_(local_slots, remote_slots)
    start = max_(remote_slots - local_slots, 0)
    return (0, have, start, start + have)


@fault(
    "with unequal kernel blocks per block, D asserts that its list is not longer than P's list",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    replaces="reference.transfers.loads:start_load",
    breaks="engine_survives",
    cluster="pd-ratio-decode",
)
def longer_list_dies_across_ratios(cluster: config.Cluster, state: State, name: str) -> State:
    """vLLM 0.32.0, found by kvproof on the live connector. Without Mamba groups, D's worker
    asserts that its list is not longer than P's list. If a block of D is wider than a block of
    P, the padding of D's last block makes D's list longer, and the engine dies. For a wider
    block of P, see `end_trim_across_ratios`. With equal ratios D's list is never longer."""
    state = start_load(cluster, state, name)
    source, sink = giver(cluster, name).engine, taker(cluster, name).engine
    transfer, engine = state.transfer(name), state.engine(sink.name)
    ratios = (sink.physical_per_logical, source.physical_per_logical)
    if transfer is None or transfer.phase != Phase.READING or ratios[0] == ratios[1]:
        return state
    for index, group in enumerate(sink.groups):
        ours = len(transfer.local[index]) * ratios[0]
        theirs = len(transfer.remote[index]) * ratios[1]
        if group.attention and ours > theirs:
            engine = engine._replace(
                dead=Death(message=f"lists of {ours} and {theirs} blocks do not pair")
            )
    return state.with_engine(engine)


@fault(
    "P frees its blocks when the lease expires, although D still reads them",
    origin="vllm#41383",
    in_vllm="NixlBaseConnectorWorker._handle_heartbeat",
    replaces="reference.transfers.pull:renewed",
    also_replaces={"counting_abstraction.transfer:renewed": lambda _t: False},
    breaks="nothing_reused_under_transfer",
    cluster="pd",
)
def lease_ends_under_reader(_transfer: Transfer) -> bool:
    """Before vllm#41383, P's lease was not renewed. It expired while D still read the blocks, P
    allocated them to another request, and D read the KV of that request."""
    return False


@fault(
    "P frees its blocks when the lease expires, although it still writes them to D",
    origin="vllm#55470",
    in_vllm="NixlBaseConnectorWorker._reap_expired_send_leases",
    replaces="reference.transfers.push:lease_expired",
    breaks=("request_reads_its_own_prefix", "nothing_reused_under_transfer"),
    cluster="push-overdue",
)
def lease_ends_under_writer(cluster: Cluster, state: State, name: str) -> State:
    """vLLM 0.32.0's push connector on P (vllm#55470): when the lease expires, P frees the blocks
    although P itself still writes them to D, or is about to write them. D receives what the next
    owner computes."""
    return producer_done(cluster, lease_expired(cluster, state, name), name)


def still_pinned(sizes: TransferSizes, t: TransferCounts) -> TransferCounts:
    """P keeps the blocks that it kept."""
    return done(sizes, t)._replace(pinned=t.pinned)


@fault(
    "P does not recognise the report that D has read the blocks, and keeps them",
    origin="vllm#36958",
    in_vllm="NixlBaseConnectorWorker._get_new_notifs",
    replaces="reference.transfers.request_ends:transfer_done",
    also_replaces={"counting_abstraction.transfer:done": still_pinned},
    breaks="every_request_can_finish",
    cluster="pd",
)
def read_is_not_reported(cluster: config.Cluster, state: State, name: str) -> State:
    """vllm#36958: D reported the end of its read with its own request id, which P did not know.
    P kept the blocks of a completed transfer. Here the read ends, and P does not learn of it."""
    source = giver(cluster, name).engine
    return transfer_done(cluster, state, name).with_engine(state.engine(source.name))


@fault(
    "D does not report to P that it needs nothing of a request, and P keeps the blocks",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPushConnectorScheduler.update_state_after_alloc",
    replaces="reference.transfers.loads:declined",
    breaks="nothing_kept_for_nobody",
    cluster="push",
)
def unneeded_prefill_is_not_reported(cluster: Cluster, state: State, name: str) -> State:
    """vLLM 0.32.0's push connector on D: if a request hits all it needs, or ends before it is
    admitted, D must report this to P. D sends no report, and P keeps the blocks until its lease
    expires. Here nothing changes where D has not answered P's offer."""
    transfer = state.transfer(name)
    unanswered = transfer is not None and transfer.phase in OPEN
    return state if cluster.pushes and unanswered else declined(cluster, state, name)


@fault(
    "D waits without limit for a write that will never come",
    origin="vllm#46283",
    in_vllm="NixlPushConnectorScheduler.build_connector_meta",
    replaces="reference.transfers.push:deadline_ended",
    breaks="every_request_can_finish",
    cluster="push-failing",
)
def write_awaited_for_ever(_cluster: Cluster, state: State, _name: str) -> State:
    """vLLM 0.32.0's push connector on D (vllm#46283, vllm#53095): D waits for a write until the
    write ends. The watchdog over its registrations only writes a log line. If P aborted the
    request, gave it up before D registered, or could not write, D keeps the blocks for ever,
    also if its user has left."""
    return state


@fault(
    "a report that no request waits for fails an assertion",
    origin="vllm#46240",
    in_vllm="Scheduler._update_from_kv_xfer_finished",
    replaces="reference.transfers.request_ends:stray_report",
    breaks="engine_survives",
    cluster="pd-stray",
)
def stray_report_dies(state: State, engine_name: str, name: str) -> State:
    """vLLM 0.32.0's scheduler (vllm#46240, vllm#43226) assumes that it waits for every report of
    a connector's worker. A report that arrives twice, or for a request that is gone, fails an
    assertion, and the engine dies. A second report survives if the next step has not yet
    processed the first one of this load."""
    state = stray_report(state, engine_name, name)
    engine = state.engine(engine_name)
    request = engine.find(name)
    if request is not None and request.status in (LOADED, FAILED):
        return state
    return state.with_engine(
        engine._replace(dead=Death(message=f"no request waits for a report on {name}"))
    )


@fault(
    "P keeps a request that waits for D in the running queue",
    origin="vllm-ascend#10545",
    in_vllm="Scheduler.update_from_output",
    replaces="reference.transfers.request_ends:stop_running",
    breaks="every_request_in_one_queue",
    cluster="pd",
)
def finished_still_runs(engine: Engine, _name: str) -> Engine:
    """P has finished a request and keeps it until D has read its blocks. The request must not
    run in this time: the next step would compute one more token of it. No release is known to
    have this mistake; it is the simplest way for a request to be in two places."""
    return engine


@fault(
    "an abort frees D's blocks while the transfer still writes them",
    origin="vllm#32255",
    in_vllm="Scheduler.finish_requests",
    replaces="reference.transfers.request_ends:keeps_its_blocks",
    also_replaces={"counting_abstraction.table_system:keeps_its_blocks": lambda _t: False},
    breaks="nothing_reused_under_transfer",
    cluster="pd-aborting",
)
def abort_frees_under_load(_request: Request) -> bool:
    """vllm#32255: a user aborted a request in the status WAITING_FOR_REMOTE_KVS. D freed its
    blocks at once, and the read from P went on and wrote them."""
    return False


@fault(
    "the blocks of an aborted load are not freed when its transfer ends",
    origin="vllm#46283",
    in_vllm="Scheduler._update_from_kv_xfer_finished",
    replaces="reference.transfers.request_ends:without_aborted",
    breaks=("references_are_exact", "all_blocks_return"),
    cluster="pd-aborting",
)
def aborted_load_never_frees(engine: Engine, request: Request) -> Engine:
    """vllm#32255 (review) and vllm#46283: the blocks of an aborted load are to be freed when the
    transfer ends. When the report of its end arrives, the request is gone from the scheduler,
    and nothing frees the blocks."""
    return engine.without(request.id)
