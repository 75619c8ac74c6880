"""The tokens that a connector offers to load in addition to the local hit, from P, D or a store.

Sources: `get_num_new_matched_tokens` of `NixlPullConnectorScheduler`, and
`NixlBaseConnectorScheduler._truncate_request_for_prefill`.
"""

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, Schedule
from kvproof.model.phases import Way, before
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.features import follow_up_turns, store
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Engine, Request, State

OPEN = before(Schedule, Way.PULL, Way.PUSH)
"""Phases of a transfer from P in which D has not answered the offer."""


def kinds(cfg: config.Engine) -> tuple[str, ...]:
    """The kinds of the cache groups."""
    return tuple(g.kind for g in cfg.groups)


def truncated(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """On P, the request without the tokens that D computes itself."""
    if request.route != "to_decode":
        return request
    backoff = rules.backoff_on_prefill(kinds(cfg), request.embeds)
    done = len(request.prompt) < request.submitted_prompt_tokens
    length = rules.prompt_after_truncation(len(request.prompt), backoff, done)
    return request._replace(prompt=request.prompt[:length])


def asked_again(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """The request after a further look-up in the connector, which happens after a preemption."""
    return truncated(cfg, request, rules) if request.preemptions else request


def loadable(cluster: config.Cluster, state: State, request: Request, rules: Rules) -> int:
    """The number of tokens that the connector offers for this request: from P to D, from a store to
    its engine, or from D to P for a follow-up turn."""
    if cluster.decode.store:
        return store.offered(state.engine(cluster.decode.name).stored, request.tokens)
    if request.route == "to_decode":
        return (
            follow_up_turns.loadable(cluster, state, request, rules)
            if cluster.follow_up_turns
            else 0
        )
    transfer = state.transfer(request.id)
    if request.route != "from_prefill" or transfer is None or transfer.phase not in OPEN:
        return 0
    known = rules.prompt_tokens_known(len(request.prompt), request.embeds)
    backoff = rules.backoff_on_decode(kinds(cluster.decode))
    return int(rules.tokens_loaded_by_decode(known, backoff))


def check_external(
    cluster: config.Cluster,
    state: State,
    engine: Engine,
    request: Request,
    choice: Admit,
    rules: Rules,
) -> None:
    """Raises NotAllowed where a choice does not load all offered tokens after the local hit."""
    offered = loadable(cluster, state, request, rules)
    rest = max(offered - choice.local_hit, 0)
    if choice.external == rest:
        return
    cfg = cluster.engine(engine.name)
    full = prefix_hits.longest_full(cfg, engine, request.tokens, rules)
    beside_hit = offered if cfg.store else rules.offered_beside_hit(offered, full)
    if choice.external == max(beside_hit - choice.local_hit, 0):
        return
    raise NotAllowed(f"{request.id} loads {choice.external} tokens where {rest} are offered")


def best_admission(
    cluster: config.Cluster,
    cfg: config.Engine,
    state: State,
    engine: Engine,
    request: Request,
    rules: Rules,
) -> tuple[int, int]:
    """The hit and the external tokens, both in tokens, that leave the fewest tokens to compute."""
    request = asked_again(cfg, request, rules)
    together = 0
    if cfg.prefix_caching:
        together = prefix_hits.longest_together(cfg, engine, request.tokens, rules)
    offered = loadable(cluster, state, request, rules)
    hit = together
    shared = cfg.prefix_caching and rules.connector_brings_states(cfg)
    if together < offered and shared:
        # At least one token is loaded, so that the states are loaded with it.
        full = prefix_hits.longest_full(cfg, engine, request.tokens, rules)
        offered = rules.offered_beside_hit(offered, full)
        alone = prefix_hits.each_alone(cfg, engine, request.tokens, rules)
        local = rules.hit_before_load(together, full, alone)
        hit = max(together, min(local, rules.longest_hit_tokens(offered, cfg.hit_unit)))
    return hit, max(offered - hit, 0)
