"""vLLM 0.32.0, found by kvproof on the live connector. D's full-attention cache covers all tokens
that P offers, but D has no Mamba state there. vLLM asks the connector for tokens after this hit,
and there are none. Then vLLM reduces the hit, because the state is missing, and does not ask the
connector again. D computes the prompt from the start, although P has the state. It would be enough
to ask again, or to leave one block to load."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.transfers.offers import loadable
from kvproof.model.state import Request, State


def nothing_beside_a_full_hit(cluster: config.Cluster, state: State, request: Request) -> int:
    """Nothing, where full attention has all offered tokens cached."""
    offered = loadable(cluster, state, request)
    cfg = cluster.prefill if request.route == "to_decode" else cluster.decode
    if cfg.store or not cfg.prefix_caching:
        return offered
    full = prefix_hits.longest_full(cfg, state.engine(cfg.name), request.tokens)
    return offered if full < offered else 0


FAULT = Fault(
    name="full_hit_gives_up_load",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._get_local_prefix_cache_hit",
    mistake=(
        "a hit on all offered tokens is reduced because the state is missing, and nothing is loaded"
    ),
    replaces={"reference.transfers.offers:loadable": nothing_beside_a_full_hit},
    breaks=("offered_tokens_are_loaded",),
    cluster="pd-covering",
    trace_events=11,
)
