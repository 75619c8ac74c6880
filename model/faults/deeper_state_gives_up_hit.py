"""vLLM 0.32.0, found by kvproof on the live connector. D served a prompt; later the end of its
attention blocks is evicted, and its Mamba state stays cached. For a later prompt the state's hit is
longer than the attention hit. D then uses only the common hit of all groups, which may be 0 tokens,
and loads what P offers. If the state's hit is not longer, D uses the attention hit and loads the
rest."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.transfers.offers import best_admission, looked_up_again
from kvproof.model.state import Request, State


def what_all_agree_on(
    cluster: config.Cluster, cfg: config.EngineConfig, state: State, request: Request
) -> tuple[int, int]:
    """The common hit of all groups before a load, if one group alone has more tokens cached than
    full attention; otherwise the hit of full attention."""
    hit, external = best_admission(cluster, cfg, state, request)
    engine = state.engine(cfg.name)
    request = looked_up_again(cfg, request)
    if not external or not cfg.prefix_caching or cfg.store:
        return hit, external
    if not prefix_hits.deeper(cfg, engine, request.tokens):
        return hit, external
    together = prefix_hits.longest_together(cfg, engine, request.tokens)
    return together, external + hit - together


FAULT = Fault(
    name="deeper_state_gives_up_hit",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._get_local_prefix_cache_hit",
    mistake=(
        "if a cached state covers more tokens than the attention cache, D gives up the attention "
        "hit"
    ),
    replaces={"reference.transfers.offers:best_admission": what_all_agree_on},
    breaks=("repeated_prompt_hits",),
    cluster="pd-remnant",
    trace_events=19,
)
