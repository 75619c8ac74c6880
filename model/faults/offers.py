"""What P offers to D, and what D loads of it: truncated prompts, loaded tokens, and local hits."""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, if_
from kvproof.model.faults.fault import fault
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.transfers.offers import (
    backoff_on_decode,
    best_admission,
    loadable,
    looked_up_again,
    offered_by_prefill,
)
from kvproof.model.state import LATE, Request, State


@fault(
    "P decodes the answer before it offers the prompt to D",
    origin="vllm#18248",
    replaces="arithmetic.counts:output_tokens",
    breaks="prefill_and_decode_agree",
    cluster="pd",
)
def prefill_decodes_on(max_tokens: Num, prefill: Truth) -> Num:  # noqa: ARG001
    """P must sample one token (vllm#37310); a proxy asked for ten (vllm#18248). If P samples as
    many tokens as the user asked for, it decodes the whole answer. P then sends the KV and
    states of more tokens than D counts."""
    return max_tokens


@fault(
    "D loads the state of all N tokens and then applies token N a second time",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    replaces="arithmetic.counts:tokens_loaded_by_decode",
    breaks="prefill_and_decode_agree",
    cluster="pd",
    also_in=("pd-state",),
)
def decode_loads_whole_prompt(prompt: Num, backoff: Num) -> Num:  # noqa: ARG001
    """Before vllm#37310, D loaded the state of N tokens. D computes token N again, and this step
    needs the state of N - 1 tokens."""
    return prompt


@fault(
    "P truncates the prompt again each time it schedules a preempted request",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    replaces="arithmetic.counts:prompt_after_truncation",
    breaks=("truncated_at_most_once", "prefill_and_decode_agree"),
    cluster="pd-preempting",
    also_in=("pd-state-preempting",),
)
def truncation_without_guard(prompt: Num, backoff: Num, truncated: Truth) -> Num:  # noqa: ARG001
    """vllm#37310 (review): the scheduler asks the connector about a request again after every
    preemption. Without `_p_side_truncated`, the connector drops one token each time."""
    return if_(prompt > backoff, prompt - backoff, prompt)


@fault(
    "P truncates a prompt of one token to an empty prompt",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    replaces="arithmetic.counts:prompt_after_truncation",
    breaks="every_request_can_finish",
    cluster="pd-one-token",
)
def one_token_prompt_truncated(prompt: Num, backoff: Num, truncated: Truth) -> Num:
    """P must not truncate a prompt of one token (vllm#37310). A truncated prompt of one token is
    empty: nothing is ever scheduled for it, and it waits for ever. No public report of this
    mistake is known."""
    return if_(truncated, prompt, prompt - backoff)


@fault(
    "P truncates for any group that is not full attention, so window groups lose a token",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    replaces="reference.transfers.offers:backoff_on_prefill",
    breaks="prefill_and_decode_agree",
    cluster="pd-window",
)
def truncates_for_any_non_full_group(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """The first version of vllm#37310 checked `_is_hma_required`, which is true for a sliding
    window too. The KV of a window has no running state, so P must not truncate the prompt, and D
    does not expect it."""
    return 1 if any(kind != "full" for kind in kinds) else 0


@fault(
    "P does not truncate a prompt that is submitted as embeddings",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    replaces="reference.transfers.offers:backoff_on_prefill",
    breaks=("prefill_and_decode_agree", "state_read_is_state_at_computed"),
    cluster="pd-embeds",
)
def embeddings_not_truncated(kinds: tuple[str, ...], embeds: bool) -> int:
    """vllm#37310 (review): the truncation looked only at `prompt_token_ids`. P did not truncate
    a prompt of embeddings, and D used the state of N tokens as the state of N - 1 tokens."""
    return 0 if embeds else backoff_on_decode(kinds)


@fault(
    "D loads nothing of a prompt that is submitted as embeddings",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    replaces="reference.transfers.offers:offered_by_prefill",
    breaks="offered_tokens_are_loaded",
    cluster="pd-embeds",
)
def embeddings_not_loaded(cluster: config.Cluster, request: Request) -> int:
    """vLLM 0.32.0, found by kvproof on the live connector. D computes the number of offered
    tokens from the length of `prompt_token_ids`, which a prompt of embeddings does not have. P
    computes the prompt, and D loads nothing and computes it again."""
    return 0 if request.embeds else offered_by_prefill(cluster, request)


@fault(
    "P does not offer its last block if it is not full, and D counts it as loaded",
    origin="vllm#21074",
    in_vllm="NixlPullConnectorScheduler.request_finished",
    replaces="arithmetic.counts:attention_blocks_offered",
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="pd-superseding",
)
def partial_block_not_offered(tokens: Num, block_size: Num) -> Num:
    """Before vllm#21074, P offered only full blocks. D counted all tokens that P had computed as
    loaded, and attended to the tokens of the last block, which was not loaded."""
    return counts.full_blocks(tokens, block_size)


@fault(
    "P takes the last token of a request that it preempted, and offers freed blocks",
    origin="vllm#50297",
    in_vllm="Scheduler._preempt_request",
    replaces="reference.in_flight:fate_of_preempted",
    breaks="offer_has_tokens",
    cluster="pd-roles-preempting",
)
def preempted_prefill_is_offered(_produces: bool) -> str:
    """vllm#50297: P preempted a request while its last token was in flight. The token arrived,
    ended the request, and P offered blocks that the preemption had freed."""
    return LATE


@fault(
    "a hit on all offered tokens is reduced because the state is missing, and nothing is loaded",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._get_local_prefix_cache_hit",
    replaces="reference.transfers.offers:loadable",
    breaks="offered_tokens_are_loaded",
    cluster="pd-covering",
)
def full_hit_gives_up_load(cluster: config.Cluster, state: State, request: Request) -> int:
    """vLLM 0.32.0, found by kvproof on the live connector. D's full-attention cache covers all
    tokens that P offers, but D has no Mamba state there. vLLM asks the connector for tokens
    after this hit, and there are none. Then vLLM reduces the hit, because the state is missing,
    and does not ask the connector again. D computes the prompt from the start, although P has
    the state. It would be enough to ask again, or to leave one block to load. Here nothing is
    loadable where full attention has all offered tokens cached."""
    offered = loadable(cluster, state, request)
    cfg = cluster.prefill if request.route == "to_decode" else cluster.decode
    if cfg.store or not cfg.prefix_caching:
        return offered
    full = prefix_hits.longest_full(cfg, state.engine(cfg.name), request.tokens)
    return offered if full < offered else 0


@fault(
    "if a cached state covers more tokens than the attention cache, D gives up the attention hit",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._get_local_prefix_cache_hit",
    replaces="reference.transfers.offers:best_admission",
    breaks="repeated_prompt_hits",
    cluster="pd-remnant",
)
def deeper_state_gives_up_hit(
    cluster: config.Cluster, cfg: config.EngineConfig, state: State, request: Request
) -> tuple[int, int]:
    """vLLM 0.32.0, found by kvproof on the live connector. D served a prompt; later the end of
    its attention blocks is evicted, and its Mamba state stays cached. For a later prompt the
    state's hit is longer than the attention hit. D then uses only the common hit of all groups,
    which may be 0 tokens, and loads what P offers. If the state's hit is not longer, D uses the
    attention hit and loads the rest. Here the hit before a load is the common hit of all groups,
    if one group alone has more tokens cached than full attention."""
    hit, external = best_admission(cluster, cfg, state, request)
    engine = state.engine(cfg.name)
    request = looked_up_again(cfg, request)
    if not external or not cfg.prefix_caching or cfg.store:
        return hit, external
    if not prefix_hits.deeper(cfg, engine, request.tokens):
        return hit, external
    together = prefix_hits.longest_together(cfg, engine, request.tokens)
    return together, external + hit - together


@fault(
    "D uses only the common hit of all groups, although P sends the state in any case",
    origin="vllm#42524",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    replaces="reference.blocks.prefix_hits:connector_brings_states",
    breaks="repeated_prompt_hits",
    cluster="pd-repeating",
)
def hit_needs_every_group_on_decode(_cfg: config.EngineConfig) -> bool:
    """vllm#42524: D has the attention blocks of a prompt and no Mamba state at any boundary. D
    hits 0 tokens and loads the whole prompt again on every turn."""
    return False
