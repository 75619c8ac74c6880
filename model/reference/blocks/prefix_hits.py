"""Prefix hits: how many tokens of a prompt the cache serves in all groups.

Source: `HybridKVCacheCoordinator.find_longest_cache_hit` of vLLM V1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import capacity, groups
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Engine


class Hit(NamedTuple):
    """A local prefix hit in tokens, the part that each group has itself (`own`, in tokens), and the
    shared prefix boundary at which the next chunk must also stop."""

    tokens: int
    own: tuple[int, ...]
    shared_prefix_boundary: int


def _longest(cfg: config.Engine, tokens: str, rules: Rules) -> int:
    """The longest possible hit of a prompt, in tokens."""
    known = len(tokens)
    if cfg.eagle_drop_tokens:
        known = rules.matched_tokens(known, len(cfg.groups))
    return int(rules.longest_hit_tokens(known, cfg.hit_unit, cfg.eagle_drop_tokens))


def _lengths(cfg: config.Engine, tokens: str, rules: Rules) -> range:
    """Candidate hit lengths in tokens, longest first."""
    return range(_longest(cfg, tokens, rules), -1, -cfg.hit_unit)


def longest_alone(
    cfg: config.Engine, engine: Engine, tokens: str, index: int, limit: int, rules: Rules
) -> int:
    """The longest hit, up to `limit` tokens, that one group can serve by itself."""
    for length in _lengths(cfg, tokens, rules):
        if length <= limit and groups.resident(cfg, engine, index, tokens, length, rules):
            return length
    return 0


def longest_together(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules) -> int:
    """The longest hit, in tokens, that holds in every group and fits in the pool."""
    for length in _lengths(cfg, tokens, rules):
        if cfg.partial_block_hits and not rules.hit_fits_pool(
            capacity.blocks_with_hit(cfg, length, len(tokens)), cfg.num_blocks
        ):
            continue
        if length == 0 or rules.hit_holds(
            groups.resident(cfg, engine, index, tokens, length, rules)
            for index in range(len(cfg.groups))
        ):
            return rules.settled_hit(length, len(cfg.groups))
    return 0


def longest_full(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules) -> int:
    """The longest hit, in tokens, of the full-attention groups by themselves; 0 without such
    groups."""
    full = [i for i, g in enumerate(cfg.groups) if g.kind == "full"]
    return min((longest_alone(cfg, engine, tokens, i, len(tokens), rules) for i in full), default=0)


def each_alone(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules) -> Iterator[int]:
    """The longest hit, in tokens, that each group can serve by itself."""
    for index in range(len(cfg.groups)):
        yield longest_alone(cfg, engine, tokens, index, len(tokens), rules)


def deeper(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules) -> bool:
    """Whether some group by itself can serve a longer hit than full attention, because full
    attention lost blocks by eviction."""
    full = longest_full(cfg, engine, tokens, rules)
    return any(alone > full for alone in each_alone(cfg, engine, tokens, rules))


def look_up(
    cfg: config.Engine, engine: Engine, tokens: str, hit: int, external: int, rules: Rules
) -> Hit:
    """The hit of this length. Raises NotAllowed where the cache does not hold it.

    A hit must hold in every group. Where P provides the tokens after the hit, it also provides the
    states and windows, so the hit must hold only in the full-attention groups
    (`get_computed_blocks_for_connector`). With a store, the hit must hold in every group.
    """
    if not cfg.prefix_caching and hit:
        raise NotAllowed("there is a hit although prefix caching is off")
    if hit % cfg.hit_unit or hit > _longest(cfg, tokens, rules):
        raise NotAllowed(f"a hit of {hit} tokens is not a whole number of blocks before the end")
    brought = external > 0 and rules.connector_brings_states(cfg)
    whole = hit == 0 or rules.hit_holds(
        groups.resident(cfg, engine, index, tokens, hit, rules) for index in range(len(cfg.groups))
    )
    if not whole and not (brought and hit <= longest_full(cfg, engine, tokens, rules)):
        raise NotAllowed(f"a hit of {hit} tokens does not hold in every group")
    if cfg.partial_block_hits and hit and not capacity.has_room_for_hit(cfg, hit, len(tokens)):
        raise NotAllowed(f"a hit of {hit} tokens has no room, copies included")
    own = tuple(
        hit if whole else longest_alone(cfg, engine, tokens, i, hit, rules)
        for i in range(len(cfg.groups))
    )
    return Hit(hit, own, _boundary(cfg, engine, tokens, hit, external, rules))


def _boundary(
    cfg: config.Engine, engine: Engine, tokens: str, hit: int, external: int, rules: Rules
) -> int:
    """The shared prefix boundary in tokens: where this prompt diverges from a cached one and a
    state should be kept. 0 for none. A request that takes the hit of full attention and gets the
    state from P has none."""
    if not cfg.marks_shared_prefix_boundaries or not cfg.prefix_caching:
        return 0
    full = longest_full(cfg, engine, tokens, rules)
    looks = not external or cfg.store or not cfg.has_state or deeper(cfg, engine, tokens, rules)
    return rules.shared_prefix_boundary(full, hit) if looks else 0


def shared_prefix_boundary(alone: int, together: int) -> int:
    """Where the next chunk must also stop: the end of the prefix that full attention has cached
    (`alone`) beyond what all groups can serve (`together`), so that the next prompt with the same
    prefix finds a state there (vllm#37898). 0 for nowhere."""
    return alone if alone > together else 0
