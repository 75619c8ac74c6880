"""The phases of a KV transfer, and the one table of how a transfer goes from phase to phase.

The reference can make no other transition (`state.Transfer.to`). The guard
`transfer_goes_as_the_table_says` checks that every machine makes only these. The adapter of vLLM
reports the phase of a transfer in these terms, and the counting abstraction takes its phase numbers
and guards from this table.

The *sender* has the blocks, and the *receiver* fills its own blocks with their content. P is the
sender and D the receiver, except in a reverse transfer.
"""

import functools
from enum import StrEnum
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.config.sides import is_reverse
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
    """The phase of a transfer: which side waits for what."""

    NONE = "none"
    """There is no transfer: it has not begun, or it is over."""
    OFFERED = "offered"
    """The sender has finished its request and keeps the blocks for the receiver."""
    READING = "reading"
    """The blocks are being copied, by the receiver's reads or by P's writes; both sides wait for
    the end."""
    RELEASING = "releasing"
    """The receiver needs none of the blocks; the sender waits for the notification that it may free
    them."""
    ABANDONED = "abandoned"
    """The copy failed, and there is no retry. With pull the sender does not know this and waits
    until its lease ends. With push the receiver does not know this and waits until its deadline."""
    LOST = "lost"
    """The end of a read is never reported: the receiver waits forever, and the sender waits until
    its lease ends."""
    AWAITED = "awaited"
    """Push: D has the request and has not registered blocks for it; P has not finished it."""
    REGISTERED = "registered"
    """Push: D has registered its blocks with P, and waits for P to finish."""
    OVERDUE = "overdue"
    """Push: P's lease has ended while P still writes to D's blocks; both sides wait for the end."""
    EXPIRED = "expired"
    """Reverse: D's lease ended before P requested the blocks. P does not know this and may still
    request them."""
    REFUSED = "refused"
    """Reverse: P requested the blocks too late, and waits for a read that its worker does not start
    (vllm#47021)."""
    CLOSED = "closed"
    """Reverse: the transfer is over, and neither side waits. Its record stays, because P requests
    the blocks only once."""


NUMBERS: dict[Phase, int] = {phase: number for number, phase in enumerate(Phase)}
"""The phases as numbers, for the counting abstraction. NONE is 0."""


class Way(StrEnum):
    """Which side is the sender, and which side copies the blocks."""

    PULL = "pull"
    """From P to D; D reads."""
    PUSH = "push"
    """From P to D; P writes."""
    REVERSE = "reverse"
    """From D to P, for the next turn of a conversation; P reads (vllm#32553)."""


class Transition(NamedTuple):
    """A transfer may go from phase `was` to phase `now` at an event of this kind. `source` is the
    function of vLLM that makes the transition."""

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
        (Phase.LOST, LeaseExpire, Phase.LOST, "_reap_expired_send_leases: D still waits"),
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
"""All transitions, by way."""

_WRITABLE = frozenset((t.was, t.now) for lines in TRANSITIONS.values() for t in lines)
_ALLOWED = frozenset((w, t.was, t.event, t.now) for w, lines in TRANSITIONS.items() for t in lines)


def phases_of(way: Way) -> frozenset[Phase]:
    """The phases that transfers of this way may be in."""
    return frozenset(phase for t in TRANSITIONS[way] for phase in (t.was, t.now))


def way_of(cluster: Cluster, transfer: str) -> Way:
    """The way of the transfer of this name."""
    if is_reverse(transfer):
        return Way.REVERSE
    return Way.PUSH if cluster.pushes else Way.PULL


def writable(was: Phase, now: Phase) -> bool:
    """Whether any transition leads from one phase to another, at any event."""
    return was == now or (was, now) in _WRITABLE


def allowed(way: Way, was: Phase, event: Event, now: Phase) -> bool:
    """Whether a transfer may go from one phase to another at this event."""
    return was == now or (way, was, type(event), now) in _ALLOWED


@functools.cache
def before(event: type[Event], *ways: Way) -> frozenset[Phase]:
    """The phases from which an event of this kind makes a transition; of all ways if no way is
    given."""
    found = (t for way in ways or Way for t in TRANSITIONS[way] if t.event is event)
    return frozenset(t.was for t in found)


def leading_to(now: Phase, *ways: Way) -> frozenset[Phase]:
    """The phases from which a transition leads to this phase; of all ways if no way is given."""
    found = (t for way in ways or Way for t in TRANSITIONS[way] if t.now == now)
    return frozenset(t.was for t in found)
