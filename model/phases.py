"""The phases of a KV transfer, and the one table of how a transfer goes from phase to phase.

The reference can write no other transition (`state.Transfer.to`). The guard
`transfer_goes_as_the_table_says` asks every machine for these and no others. The adapter of vLLM
says in these words how far a transfer is, and the counting abstraction takes its numbers and its
guards from here.

The *sender* has the blocks and the *receiver* fills its own with what they hold: P is the sender
and D the receiver, but of a reverse transfer.
"""

import functools
from enum import StrEnum
from typing import NamedTuple

from kvproof.model.config import REVERSE, Cluster
from kvproof.model.events import (
    Abort,
    Complete,
    Event,
    LeaseExpire,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
)


class Phase(StrEnum):
    """How far a transfer is: who waits for whom."""

    NONE = "none"
    """There is no transfer: it has not begun, or is over."""
    OFFERED = "offered"
    """The sender has finished its request and keeps the blocks; it waits for the receiver."""
    READING = "reading"
    """The blocks are copied, by the receiver's reads or by P's writes; both wait for the end."""
    RELEASING = "releasing"
    """The receiver needs none of the blocks; the sender waits for the message that it may free
    them."""
    ABANDONED = "abandoned"
    """The receiver's blocks could not be filled, and nobody tries again. The sender of a read does
    not know, and waits until its lease ends; the receiver of a write does not know, and waits until
    its deadline."""
    LOST = "lost"
    """The end of a read is never reported: the receiver waits forever, the sender until its lease
    ends."""
    AWAITED = "awaited"
    """Push: D has the request and has not registered blocks for it; P has not finished it."""
    REGISTERED = "registered"
    """Push: D has registered its blocks with P, and waits for P to finish."""
    OVERDUE = "overdue"
    """Push: P still writes D's blocks, and its lease has ended; both wait for the end."""
    EXPIRED = "expired"
    """Reverse: D's lease has ended before P asked. P does not know, and may ask."""
    REFUSED = "refused"
    """Reverse: P has asked too late, and waits for a read that its worker does not begin
    (vllm#47021)."""
    CLOSED = "closed"
    """Reverse: it is over, and nobody waits. It is remembered, for P asks once."""


NUMBERS: dict[Phase, int] = {phase: number for number, phase in enumerate(Phase)}
"""The phases as numbers, for the counting abstraction. NONE is 0."""


class Way(StrEnum):
    """Who sends, and who moves the blocks."""

    PULL = "pull"
    """From P to D, and D reads."""
    PUSH = "push"
    """From P to D, and P writes."""
    REVERSE = "reverse"
    """From D to P, for the next turn of a conversation, and P reads (vllm#32553)."""


class Transition(NamedTuple):
    """A transfer may go from one phase to another at an event of this kind. `source` is the
    function of vLLM that does it."""

    was: Phase
    event: type[Event]
    now: Phase
    source: str


# Schedulers: `NixlPullConnectorScheduler` for pull and reverse, `NixlPushConnectorScheduler` for
# push. Workers: `NixlPullConnectorWorker` and `NixlPushConnectorWorker`.
_TABLE: dict[Way, tuple[tuple[Phase, type[Event], Phase, str], ...]] = {
    Way.PULL: (
        (Phase.NONE, Complete, Phase.OFFERED, "request_finished"),
        (Phase.OFFERED, Schedule, Phase.READING, "update_state_after_alloc, _read_blocks_for_req"),
        (Phase.OFFERED, Schedule, Phase.RELEASING, "update_state_after_alloc: no external tokens"),
        (Phase.OFFERED, Abort, Phase.RELEASING, "request_finished on D, before it was scheduled"),
        (Phase.OFFERED, LeaseExpire, Phase.NONE, "_reap_expired_send_leases"),
        (Phase.READING, TransferDone, Phase.NONE, "_pop_done_transfers, _get_new_notifs"),
        (Phase.READING, TransferFail, Phase.ABANDONED, "_handle_failed_transfer"),
        (Phase.READING, TransferLost, Phase.LOST, "_pop_done_transfers: the state stays PROC"),
        (Phase.RELEASING, TransferDone, Phase.NONE, "_get_new_notifs"),
        (Phase.ABANDONED, LeaseExpire, Phase.NONE, "_reap_expired_send_leases"),
        (Phase.LOST, LeaseExpire, Phase.LOST, "_reap_expired_send_leases: D waits on"),
    ),
    Way.PUSH: (
        (Phase.NONE, Submit, Phase.AWAITED, "Scheduler.add_request on D"),
        (Phase.NONE, Complete, Phase.OFFERED, "request_finished"),
        (Phase.AWAITED, Complete, Phase.OFFERED, "request_finished"),
        (Phase.AWAITED, Schedule, Phase.REGISTERED, "update_state_after_alloc"),
        (Phase.AWAITED, Schedule, Phase.RELEASING, "update_state_after_alloc: no external tokens"),
        (Phase.AWAITED, Schedule, Phase.NONE, "the same, and P has no such request any more"),
        (Phase.AWAITED, Abort, Phase.RELEASING, "request_finished on D, before it was scheduled"),
        (Phase.AWAITED, Abort, Phase.NONE, "the same, and P has no such request any more"),
        (Phase.REGISTERED, Complete, Phase.READING, "request_finished, _do_start_push_kv"),
        (Phase.REGISTERED, LeaseExpire, Phase.NONE, "build_connector_meta: the deadline of D"),
        (Phase.OFFERED, Schedule, Phase.READING, "_handle_push_reg_notif, _do_start_push_kv"),
        (Phase.OFFERED, Schedule, Phase.RELEASING, "update_state_after_alloc: no external tokens"),
        (Phase.OFFERED, Abort, Phase.RELEASING, "request_finished on D, before it was scheduled"),
        (Phase.OFFERED, LeaseExpire, Phase.NONE, "_reap_expired_send_leases"),
        (Phase.OFFERED, LeaseExpire, Phase.AWAITED, "the same, and D has the request"),
        (Phase.READING, TransferDone, Phase.NONE, "_pop_done_transfers, _get_new_notifs"),
        (Phase.READING, TransferFail, Phase.ABANDONED, "_handle_failed_transfer"),
        (Phase.READING, LeaseExpire, Phase.OVERDUE, "_reap_expired_send_leases"),
        (Phase.OVERDUE, TransferDone, Phase.NONE, "_pop_done_transfers, _get_new_notifs"),
        (Phase.OVERDUE, TransferFail, Phase.ABANDONED, "_handle_failed_transfer"),
        (Phase.RELEASING, TransferDone, Phase.NONE, "_get_new_notifs"),
        (Phase.RELEASING, Abort, Phase.NONE, "request_finished on P, whose request is gone"),
        (Phase.ABANDONED, LeaseExpire, Phase.NONE, "build_connector_meta: the deadline of D"),
    ),
    Way.REVERSE: (
        (Phase.NONE, Complete, Phase.OFFERED, "request_finished on D"),
        (Phase.OFFERED, Schedule, Phase.READING, "update_state_after_alloc, _read_blocks_for_req"),
        (Phase.OFFERED, Schedule, Phase.RELEASING, "update_state_after_alloc: no external tokens"),
        (Phase.OFFERED, LeaseExpire, Phase.EXPIRED, "_reap_expired_send_leases on D"),
        (Phase.EXPIRED, Schedule, Phase.REFUSED, "_is_turn2_read_expired"),
        (Phase.EXPIRED, Schedule, Phase.CLOSED, "update_state_after_alloc: no external tokens"),
        (Phase.READING, TransferDone, Phase.CLOSED, "_pop_done_transfers, _get_new_notifs"),
        (Phase.READING, TransferFail, Phase.ABANDONED, "_handle_failed_transfer"),
        (Phase.RELEASING, TransferDone, Phase.CLOSED, "_get_new_notifs"),
        (Phase.ABANDONED, LeaseExpire, Phase.CLOSED, "_reap_expired_send_leases on D"),
        (Phase.REFUSED, TransferFail, Phase.CLOSED, "_handle_failed_transfer"),
    ),
}

TRANSITIONS: dict[Way, tuple[Transition, ...]] = {
    way: tuple(Transition(*line) for line in lines) for way, lines in _TABLE.items()
}
"""All transitions that there are."""

_WRITABLE = frozenset((t.was, t.now) for lines in TRANSITIONS.values() for t in lines)
_ALLOWED = frozenset((w, t.was, t.event, t.now) for w, lines in TRANSITIONS.items() for t in lines)


def phases_of(way: Way) -> frozenset[Phase]:
    """The phases that transfers of this way may be in."""
    return frozenset(phase for t in TRANSITIONS[way] for phase in (t.was, t.now))


def way_of(cluster: Cluster, transfer: str) -> Way:
    """The way of the transfer of this name."""
    if transfer.endswith(REVERSE):
        return Way.REVERSE
    return Way.PUSH if cluster.pushes else Way.PULL


def writable(was: Phase, now: Phase) -> bool:
    """Whether any transition leads from one phase to another, at whatever event."""
    return was == now or (was, now) in _WRITABLE


def allowed(way: Way, was: Phase, event: Event, now: Phase) -> bool:
    """Whether a transfer may go from one phase to another at this event."""
    return was == now or (way, was, type(event), now) in _ALLOWED


@functools.cache
def before(event: type[Event], *ways: Way) -> frozenset[Phase]:
    """The phases in which an event of this kind moves a transfer on, of all ways if none is
    named."""
    found = (t for way in ways or Way for t in TRANSITIONS[way] if t.event is event)
    return frozenset(t.was for t in found)


def leading_to(now: Phase, *ways: Way) -> frozenset[Phase]:
    """The phases from which a transfer comes into this one, of all ways if none is named."""
    found = (t for way in ways or Way for t in TRANSITIONS[way] if t.now == now)
    return frozenset(t.was for t in found)
