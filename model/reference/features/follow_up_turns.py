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

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import incoming
from kvproof.model.events import Schedule
from kvproof.model.phases import Way, before
from kvproof.model.state import Request, State

OPEN = before(Schedule, Way.REVERSE)
"""Phases of a reverse transfer in which P has not requested it."""


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
