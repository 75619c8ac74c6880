"""Follow-up turns: D keeps what it has of a request it finished, and offers it to P.

The client sends the next turn to P: prompt and answer so far, and perhaps more. P loads what D
still has of it, computes the rest, and offers all of it to D as ever. Such a reverse transfer is
one like any other, from D to P, under the name of the earlier request with ` reverse` behind it.
D keeps the blocks until its lease ends, and nobody renews that lease (see `phases`).

Sources: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553), its
`kv_recompute_threshold` 0, so that P asks for any number of tokens.

Modelled for all layouts as it is with several groups: a failed read is reported by its request,
and P begins anew. With one group of full attention the worker names the blocks too, and P keeps its
local hit.

Left open: that a read lasts longer than the rest of D's lease, or its end is never reported, and
follow-ups whose tokens part from those of D, which vLLM leaves to the router (vllm#43094).
"""

from typing import NamedTuple

from kvproof.model import config
from kvproof.model.config import REVERSE
from kvproof.model.events import Schedule
from kvproof.model.phases import Phase, Way, before
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Request, State, Transfer

OPEN = before(Schedule, Way.REVERSE)
"""Phases of a reverse transfer in which P has not asked for it."""

OVER = (Phase.CLOSED, Phase.ABANDONED)
"""Phases of a reverse transfer in which P has asked, and gets nothing any more."""


class Parties(NamedTuple):
    """Who gives and who takes in a transfer: two engines, and the request on each. `taken` is empty
    where no job follows."""

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
    """Who gives and who takes in the transfer of this name."""
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
    """The jobs that are answered and that no other follows yet."""
    if not cluster.follow_up_turns:
        return ()
    free = (job for job in cluster.jobs if cluster.follow_up(job.name) is None)
    return tuple(job for job in free if answered(cluster, state, job.name))


def may_come(cluster: config.Cluster, state: State, job: config.Job) -> bool:
    """Whether a job is no follow-up, or the turn before it is over."""
    return not job.follows or answered(cluster, state, job.follows)


def loadable(cluster: config.Cluster, state: State, request: Request, rules: Rules) -> int:
    """Tokens that P may load of what D keeps. It asks once: what it could not load then, or lost
    again, it computes."""
    transfer = state.transfer(incoming(cluster, cluster.prefill.name, request.id))
    if transfer is None or transfer.phase not in (*OPEN, *OVER):
        return 0
    if not rules.asks_for_held(transfer.phase in OVER):
        return 0
    whole = all(g.kind == "full" for g in cluster.prefill.groups)
    return int(rules.held_tokens_loaded(transfer.tokens, len(request.prompt), whole))


def asks_again(cluster: config.Cluster, request: Request, rules: Rules) -> bool:
    """Whether P, where it begins at the first token, asks for what D keeps though it has it."""
    on_p = cluster.follow_up_turns and request.route == "to_decode"
    return on_p and rules.asks_for_held(bool(request.external))


def requested(transfer: Transfer) -> Transfer:
    """The reverse transfer after P asked for it, whose lease may have ended. Who asks again, where
    it is over, waits for nothing."""
    begun = {Phase.OFFERED: Phase.READING, Phase.EXPIRED: Phase.REFUSED}
    return transfer.to(begun.get(transfer.phase, transfer.phase))


def over(transfer: Transfer) -> Transfer:
    """The reverse transfer when D keeps nothing more, and P has asked."""
    return transfer.to(Phase.CLOSED, remote=(), local=(), pairs=())


def expired(transfer: Transfer) -> Transfer:
    """The reverse transfer when D's lease has ended: P may ask yet, or has asked."""
    unasked = transfer.phase == Phase.OFFERED
    phase = Phase.EXPIRED if unasked else Phase.CLOSED
    return transfer.to(phase, remote=(), local=(), pairs=())
