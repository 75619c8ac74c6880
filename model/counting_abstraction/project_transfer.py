"""Computes the counts of KV transfers from the states of a step (see `transfer`)."""

from collections.abc import Iterator

from kvproof.model.arithmetic import counts
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction import transfer as counted
from kvproof.model.counting_abstraction.observed import Move, Observed, move
from kvproof.model.counting_abstraction.transfer import NO_TRANSFER, TransferSizes
from kvproof.model.events import LeaseExpire, TransferDone, TransferFail, TransferLost
from kvproof.model.phases import NUMBERS, Phase
from kvproof.model.reference.transfers import offers
from kvproof.model.reference.transfers.offers import kinds
from kvproof.model.state import SENDING, Request, State, Transfer
from kvproof.model.step import Step

READER = (Phase.READING, Phase.LOST, Phase.RELEASING)
"""Phases in which D has answered P's offer."""

BY_EVENT: dict[type, str] = {
    TransferDone: "done",
    TransferFail: "fail",
    TransferLost: "lose",
    LeaseExpire: "expire",
}
BY_PHASE = {Phase.OFFERED: "offer", Phase.READING: "load", Phase.RELEASING: "release"}


def sizes_of(cluster: Cluster, index: int, embeds: bool) -> TransferSizes:
    """The sizes a cluster fixes for one group."""
    p, d = cluster.prefill, cluster.decode
    group = d.groups[index]
    backoffs = (
        offers.backoff_on_prefill(kinds(p), embeds),
        offers.backoff_on_decode(kinds(d)),
    )
    if not group.attention:
        # The slots of a Mamba list are whole blocks.
        return TransferSizes(1, p.groups[index].block_size, group.block_size, 0, *backoffs)
    ratios = p.physical_per_logical, d.physical_per_logical
    return TransferSizes(d.kernel_tokens(index), *ratios, group.window, *backoffs)


def _first(request: Request | None, index: int, blocks: tuple[int, ...], ratio: int) -> int:
    """The position of the first of these kernel blocks in a request, 0 where there is none."""
    if not blocks or request is None:
        return 0
    logical, part = counts.logical_block(blocks[0], ratio)
    table = request.tables[index]
    return table.index(int(logical)) * ratio + int(part) if logical in table else -1


def transfer_counts(
    cluster: Cluster, state: State, name: str, transfer: Transfer | None, index: int
) -> counted.TransferCounts:
    """The counts of one request's transfer in one group. P may still keep the blocks of a transfer
    that has ended."""
    p, d = cluster.prefill, cluster.decode
    sender, reader = state.engine(p.name).find(name), None
    pinned = int(sender is not None and sender.status == SENDING)
    if transfer is None:
        return NO_TRANSFER._replace(pinned=pinned)
    if transfer.phase in READER:
        reader = state.engine(d.name).find(name)
    ours, theirs = transfer.pairs[index] if transfer.pairs else ((), ())
    attention = d.groups[index].attention
    loads = reader is not None and transfer.phase != Phase.RELEASING
    return counted.TransferCounts(
        NUMBERS[transfer.phase],
        pinned,
        len(cluster.job(name).prompt),
        transfer.tokens,
        reader.hit if reader and loads else 0,
        reader.external if reader and loads else 0,
        len(transfer.remote[index]),
        len(transfer.local[index]) if transfer.local else 0,
        len(ours),
        len(theirs),
        _first(reader, index, ours, d.physical_per_logical) if attention else 0,
        _first(sender, index, theirs, p.physical_per_logical) if attention else 0,
    )


def _move(cluster: Cluster, step: Step, name: str, after: Transfer | None, index: int) -> Move:
    by_event = BY_EVENT.get(type(step.event))
    if by_event is not None or after is None:
        return move(by_event or "done")
    action = BY_PHASE[after.phase]
    if action == "offer":
        job = cluster.job(name)
        return move(
            action, submitted_prompt_tokens=(len(job.prompt),), max_tokens=(job.max_tokens,)
        )
    reader = step.after.engine(cluster.decode.name).find(name)
    if action == "release":
        table = reader.tables[index] if reader and reader.tables else ()
        return move(action, admitted=(int(bool(after.pairs)),), length=(len(table),))
    hit = reader.hit if reader else 0
    own = tuple(range(hit, -1, -cluster.decode.groups[index].block_size))
    external = reader.external if reader else 0
    return move(action, hit=(hit,), own=own, external=(external,))


def observed(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each transfer whose record it changed, or whose blocks P freed."""
    if not cluster.disaggregated or any(engine.dead for _, engine in step.touched):
        return
    expiring = [step.event.request] if isinstance(step.event, LeaseExpire) else []
    for name in dict.fromkeys((*step.changed_transfers, *expiring)):
        old, new = step.before.transfer(name), step.after.transfer(name)
        for index, group in enumerate(cluster.decode.groups):
            yield Observed(
                f"the transfer of {name}, group {index}",
                f"transfer of {group.kind}",
                sizes_of(cluster, index, cluster.job(name).embeds),
                transfer_counts(cluster, step.before, name, old, index),
                (_move(cluster, step, name, new, index),),
                transfer_counts(cluster, step.after, name, new, index),
            )
