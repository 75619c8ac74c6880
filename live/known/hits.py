"""What vLLM gives up of a prefix hit, or takes although it is not there."""

from math import ceil

from kvproof.invariants.hits import longest_cached, may_end_at, missing
from kvproof.live.known.facts import admission, after, covered, offer, on_decode, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.known_finding import known_finding
from kvproof.model.step import Step


@known_finding(
    says=(
        "if a cached state covers more tokens than the attention cache, D gives up its local hit"
    ),
    signatures=seen("repeated_prompt_hits", "Schedule") | seen("hit_is_the_longest", "Schedule"),
)
def deeper_state_gives_up_hit(cluster: Cluster, step: Step, about: About) -> bool:
    """If the hit of one group alone is longer than the hit of full attention, D uses only the
    common hit of all groups, although P would send the states.

    Cause: Another group has cached a prefix of the prompt that full attention has not cached.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or not admitted.external or not cfg.connected:
        return False
    others = [i for i, group in enumerate(cfg.groups) if group.kind != "full"]
    return any(
        key[0] in others
        and blocks
        and admitted.tokens.startswith(key[1])
        and not covered(cluster, admitted, len(key[1]))
        for key, blocks in admitted.cached
    )


@known_finding(
    says=(
        "with one cache group and an EAGLE drafter, a prompt of full blocks hits one block "
        "less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
)
def eagle_drop_before_the_last_token(cluster: Cluster, step: Step, about: About) -> bool:
    """With one group and an EAGLE drafter, the matched block that is dropped must end before the
    last token. With several groups it need not.

    Cause: One group with a drafter's layers, and a prompt that ends at a block boundary.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or len(cfg.groups) != 1 or not cfg.drops_match(cfg.groups[0]):
        return False
    return len(admitted.tokens) % cfg.groups[0].block_size == 0


@known_finding(
    says="if D's attention cache covers the offer and D has no state, D loads nothing",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
)
def full_hit_gives_up_load(cluster: Cluster, step: Step, about: About) -> bool:
    """D's attention cache covers all tokens that P offers, and D has no Mamba state. vLLM asks the
    connector for tokens after this hit, and there are none. When it reduces the hit, it does not
    ask the connector again.

    Cause: Nothing is loaded, and full attention has cached all blocks of the offer.
    """
    admitted, offered = admission(step, about), offer(cluster, step, about)
    if admitted is None or offered is None or admitted.external:
        return False
    connected = on_decode(cluster, about) or on_prefill(cluster, about)
    return connected and covered(cluster, admitted, offered.tokens)


@known_finding(
    in_vllm="KVCacheManager.truncate_computed_blocks",
    says="an engine dies where it gives up a begun block for a load, and a window lacks a block",
    signatures=seen("engine_survives", "Schedule"),
)
def begun_block_given_up_by_window(cluster: Cluster, step: Step, about: About) -> bool:
    """A load of more tokens than a hit has inside its last block gives these up. vLLM then asserts
    that every window group also has the blocks before, although only full attention hits them.

    Cause: An engine of a pair, with a window group and hits inside a block, dies where it gives up
    the tokens inside the last block of a hit.
    """
    cfg, dead = cluster.engine(about.engine), after(step, about).dead
    windows = any(group.kind == "window" for group in cfg.groups)
    died = dead is not None and dead.function == "truncate_computed_blocks"
    return cfg.connected and cfg.partial_block_hits and windows and died


@known_finding(
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    says="a group with drafter layers does not match the block after a hit that another shortens",
    signatures=seen("hit_holds_in_every_group", "Schedule", on=("window",)),
)
def shrunk_hit_is_not_matched_again(cluster: Cluster, step: Step, about: About) -> bool:
    """Each group with drafter layers must match the block after a hit, which is then dropped. A
    group that shortens the hit while it drops its own block does not make the others match again:
    at the new end of the hit they have the blocks of the hit, and maybe not the one after it.

    Cause: Beside two other groups, a window lacks only the block after the hit, and has all that a
    longer hit needs.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or about.group is None or len(cfg.groups) < 3:
        return False
    keys = {key for key, blocks in admitted.cached if blocks}
    tokens = admitted.tokens + admitted.dropped

    def lacks(hit: int) -> list[str]:
        return [prefix for index, prefix in missing(cfg, keys, tokens, hit) if index == about.group]

    here = lacks(admitted.hit)
    longer = (h for h in range(admitted.hit + 1, len(tokens)) if may_end_at(cfg, h))
    only_after = bool(here) and all(len(prefix) > admitted.hit for prefix in here)
    drops = cfg.drops_match(cfg.groups[about.group])
    return drops and only_after and any(not lacks(hit) for hit in longer)


@known_finding(
    in_vllm="SlidingWindowManager.find_longest_cache_hit",
    says=(
        "with a drafter in a window group of narrow blocks, a prefix shorter than the window "
        "hits one unit less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
)
def window_prefix_aligned_before_drop(cluster: Cluster, step: Step, about: About) -> bool:
    """A prefix shorter than a window is cut to whole units of a hit before the drafter's block is
    dropped, and again after it. It loses one unit more than the block.

    Cause: A window group with a drafter's layers has blocks narrower than a hit's unit. The longest
    hit and the dropped block together have fewer blocks than a whole window and the dropped block.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None:
        return False
    best = longest_cached(cluster, admitted)
    return admitted.hit < best and any(
        best // g.block_size < ceil((g.window - 1) / g.block_size)
        for g in cfg.groups
        if g.kind == "window" and cfg.drops_match(g) and g.block_size < cfg.hit_unit
    )
