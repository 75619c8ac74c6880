"""Follow-up turns: D keeps the blocks of a finished request and offers them to P.

The client sends the next turn to P: the earlier prompt and answer, and perhaps more. P loads the
part that D still has, computes the rest, and offers all of it to D, as for any request. The reverse
transfer goes from D to P; its name is the name of the earlier request with ` reverse` at the end. D
keeps the blocks until its lease ends; the lease is never renewed (see `phases`).

Sources: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553) and
`kv_recompute_threshold` 0, so that P requests any number of tokens.

All layouts are modelled like a layout with several groups: a failed read is reported for its
request, and P starts over. In vLLM with one full-attention group, the worker also reports the
blocks, and P keeps its local hit.

Not modelled: a read that lasts longer than the rest of D's lease, a read whose end is never
reported, and follow-up turns whose tokens differ from D's tokens, which vLLM expects the router to
check (vllm#43094).
"""

from typing import NamedTuple

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config import REVERSE
from kvproof.model.events import Schedule
from kvproof.model.phases import Phase, Way, before
from kvproof.model.state import Request, State, Transfer

OPEN = before(Schedule, Way.REVERSE)
"""Phases of a reverse transfer in which P has not requested it."""


class Parties(NamedTuple):
    """The two sides of a transfer: the sending engine with its request (`source`, `sent`), and the
    receiving engine with its request (`sink`, `taken`). `taken` is empty where no job follows."""

    source: config.Engine
    sent: str
    sink: config.Engine
    taken: str


def reverse_of(name: str) -> str:
    """The name of the reverse transfer of a request that D finished."""
    return name + REVERSE


def is_reverse(transfer: str) -> bool:
    """Whether a transfer of this name goes from D to P."""
    return transfer.endswith(REVERSE)


def parties(cluster: config.Cluster, transfer: str) -> Parties:
    """The two sides of the transfer of this name."""
    p, d = cluster.prefill, cluster.decode
    if not is_reverse(transfer):
        return Parties(p, transfer, d, transfer)
    name = transfer.removesuffix(REVERSE)
    follow_up = cluster.follow_up(name)
    return Parties(d, name, p, follow_up.name if follow_up else "")


def incoming(cluster: config.Cluster, engine: str, name: str) -> str:
    """The name of the transfer that a request on an engine may load; empty where there is none."""
    if engine == cluster.decode.name:
        return name
    follows = cluster.job(name).follows
    return reverse_of(follows) if follows else ""


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


def loadable(cluster: config.Cluster, state: State, request: Request) -> int:
    """The number of tokens that P may load from D's kept blocks. P requests them once; tokens that
    it could not load, or that it lost again, it computes."""
    transfer = state.transfer(incoming(cluster, cluster.prefill.name, request.id))
    if transfer is None or transfer.phase not in OPEN:
        return 0
    whole = all(g.kind == "full" for g in cluster.prefill.groups)
    return int(counts.held_tokens_loaded(transfer.tokens, len(request.prompt), whole))


def asks_again(cluster: config.Cluster, request: Request) -> bool:
    """Whether P, when it starts at the first token, requests D's kept blocks a second time."""
    on_p = cluster.follow_up_turns and request.route == "to_decode"
    return on_p and not request.external


def requested(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it. D's lease may have ended. A second request leaves
    the phase unchanged."""
    begun = {Phase.OFFERED: Phase.READING, Phase.EXPIRED: Phase.REFUSED}
    return transfer.to(begun.get(transfer.phase, transfer.phase))


def over(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it and D keeps no more blocks."""
    return transfer.to(Phase.CLOSED, remote=(), local=(), pairs=())


def expired(transfer: Transfer) -> Transfer:
    """The reverse transfer after D's lease ended. P may still request it, or has requested it."""
    unasked = transfer.phase == Phase.OFFERED
    phase = Phase.EXPIRED if unasked else Phase.CLOSED
    return transfer.to(phase, remote=(), local=(), pairs=())
