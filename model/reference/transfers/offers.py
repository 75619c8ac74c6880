"""The tokens that a connector offers to load in addition to the local hit, from P, D or a store.

D offers to P in follow-up turns: it keeps the blocks of a finished request. The client sends the
next turn to P: the earlier prompt and answer, and perhaps more. P loads the part that D still has,
computes the rest, and offers all of it to D, as for any request. The reverse transfer goes from D
to P; its name is the name of the earlier request with ` reverse` at the end. D keeps the blocks
until its lease ends; the lease is never renewed (see `phases`).

Sources: `get_num_new_matched_tokens` of `NixlPullConnectorScheduler`, with `bidirectional_kv_xfer`
(vllm#32553) and `kv_recompute_threshold` 0, so that P requests any number of tokens;
`NixlBaseConnectorScheduler._truncate_request_for_prefill`.

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
from kvproof.model.environment import stores
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, Schedule
from kvproof.model.phases import Way, before
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.state import Request, State

OPEN = before(Schedule, Way.PULL, Way.PUSH)
"""Phases of a transfer from P in which D has not answered the offer."""


def kinds(cfg: config.EngineConfig) -> tuple[str, ...]:
    """The kinds of the cache groups."""
    return tuple(g.kind for g in cfg.groups)


def backoff_on_prefill(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """The number of last prompt tokens that P leaves to D: 1 where a Mamba state is transferred,
    because D must compute the state of the whole prompt itself (vllm#37310). Token ids and
    embeddings are treated alike."""
    return backoff_on_decode(kinds)


def backoff_on_decode(kinds: tuple[str, ...]) -> int:
    """The number of last prompt tokens that D computes itself. D can load the attention KV of the
    whole prompt, because it is only read; only a Mamba group needs the backoff."""
    return 1 if "mamba" in kinds else 0


def truncated(cfg: config.EngineConfig, request: Request) -> Request:
    """On P, the request without the tokens that D computes itself."""
    if request.route != "to_decode":
        return request
    backoff = backoff_on_prefill(kinds(cfg), request.embeds)
    done = len(request.prompt) < request.submitted_prompt_tokens
    length = counts.prompt_after_truncation(len(request.prompt), backoff, done)
    return request._replace(prompt=request.prompt[:length])


def looked_up_again(cfg: config.EngineConfig, request: Request) -> Request:
    """The request after a further look-up in the connector, which happens after a preemption."""
    return truncated(cfg, request) if request.preemptions else request


def loadable(cluster: config.Cluster, state: State, request: Request) -> int:
    """The number of tokens that the connector offers for this request: from P to D, from a store to
    its engine, or from D to P for a follow-up turn."""
    if cluster.decode.store:
        return stores.offered(state.engine(cluster.decode.name).stored, request.tokens)
    if request.route == "to_decode":
        return loadable_from_decode(cluster, state, request) if cluster.follow_up_turns else 0
    transfer = state.transfer(request.id)
    if request.route != "from_prefill" or transfer is None or transfer.phase not in OPEN:
        return 0
    return offered_by_prefill(cluster, request)


def offered_by_prefill(cluster: config.Cluster, request: Request) -> int:
    """The number of tokens of this request's prompt that D loads from P."""
    backoff = backoff_on_decode(kinds(cluster.decode))
    return int(counts.tokens_loaded_by_decode(len(request.prompt), backoff))


def check_external(cluster: config.Cluster, state: State, request: Request, choice: Admit) -> None:
    """Raises NotAllowed where a choice does not load all offered tokens after the local hit."""
    offered = loadable(cluster, state, request)
    rest = max(offered - choice.local_hit, 0)
    if choice.external != rest:
        raise NotAllowed(f"{request.id} loads {choice.external} tokens where {rest} are offered")


def best_admission(
    cluster: config.Cluster, cfg: config.EngineConfig, state: State, request: Request
) -> tuple[int, int]:
    """The hit and the external tokens, both in tokens, that leave the fewest tokens to compute."""
    engine = state.engine(cfg.name)
    request = looked_up_again(cfg, request)
    together = 0
    if cfg.prefix_caching:
        together = prefix_hits.longest_together(cfg, engine, request.tokens)
    offered = loadable(cluster, state, request)
    hit = together
    shared = cfg.prefix_caching and prefix_hits.connector_brings_states(cfg)
    if together < offered and shared:
        # At least one token is loaded, so that the states are loaded with it.
        full = prefix_hits.longest_full(cfg, engine, request.tokens)
        hit = max(together, min(full, int(counts.longest_hit_tokens(offered, cfg.hit_unit))))
    return hit, max(offered - hit, 0)


OPEN_ON_DECODE = before(Schedule, Way.REVERSE)
"""Phases of a reverse transfer in which P has not requested it."""


def loadable_from_decode(cluster: config.Cluster, state: State, request: Request) -> int:
    """The number of tokens that P may load from D's kept blocks. P requests them once; tokens that
    it could not load, or that it lost again, it computes."""
    transfer = state.transfer(incoming(cluster, cluster.prefill.name, request.id))
    if transfer is None or transfer.phase not in OPEN_ON_DECODE:
        return 0
    whole = all(g.kind == "full" for g in cluster.prefill.groups)
    return int(counts.held_tokens_loaded(transfer.tokens, len(request.prompt), whole))


def asks_again(cluster: config.Cluster, request: Request) -> bool:
    """Whether P, when it starts at the first token, requests D's kept blocks a second time."""
    on_p = cluster.follow_up_turns and request.route == "to_decode"
    return on_p and not request.external
