"""Prefix hits: how many tokens of a prompt the cache serves in all groups.

Source: `HybridKVCacheCoordinator.find_longest_cache_hit` of vLLM V1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model import capacity, config
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import groups
from kvproof.model.state import Engine


class Hit(NamedTuple):
    """A local prefix hit in tokens, the part that each group has itself (`own`, in tokens), and the
    shared prefix boundary at which the next chunk must also stop."""

    tokens: int
    own: tuple[int, ...]
    shared_prefix_boundary: int


def longest_possible(cfg: config.EngineConfig, tokens: str) -> int:
    """The longest possible hit of a prompt, in tokens."""
    return int(counts.longest_hit_tokens(len(tokens), cfg.hit_unit, cfg.eagle_drop_tokens))


def lengths(cfg: config.EngineConfig, tokens: str) -> range:
    """Candidate hit lengths in tokens, longest first."""
    return range(longest_possible(cfg, tokens), -1, -cfg.hit_unit)


def longest_alone(
    cfg: config.EngineConfig, engine: Engine, tokens: str, index: int, limit: int
) -> int:
    """The longest hit, up to `limit` tokens, that one group can serve by itself."""
    for length in lengths(cfg, tokens):
        if length <= limit and groups.resident(cfg, engine, index, tokens, length):
            return length
    return 0


def longest_together(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """The longest hit, in tokens, that holds in every group and fits in the pool."""
    for length in lengths(cfg, tokens):
        if cfg.partial_block_hits and not capacity.has_room_for_hit(cfg, length, len(tokens)):
            continue
        if length == 0 or holds(cfg, engine, tokens, length):
            return length
    return 0


def holds(cfg: config.EngineConfig, engine: Engine, tokens: str, hit: int) -> bool:
    """Whether a hit of this length holds: it must hold in every group."""
    return all(groups.resident(cfg, engine, index, tokens, hit) for index in range(len(cfg.groups)))


def longest_full(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """The longest hit, in tokens, of the full-attention groups by themselves; 0 without such
    groups."""
    full = [i for i, g in enumerate(cfg.groups) if g.kind == "full"]
    return min((longest_alone(cfg, engine, tokens, i, len(tokens)) for i in full), default=0)


def each_alone(cfg: config.EngineConfig, engine: Engine, tokens: str) -> Iterator[int]:
    """The longest hit, in tokens, that each group can serve by itself."""
    for index in range(len(cfg.groups)):
        yield longest_alone(cfg, engine, tokens, index, len(tokens))


def deeper(cfg: config.EngineConfig, engine: Engine, tokens: str) -> bool:
    """Whether some group by itself can serve a longer hit than full attention, because full
    attention lost blocks by eviction."""
    full = longest_full(cfg, engine, tokens)
    return any(alone > full for alone in each_alone(cfg, engine, tokens))


def connector_brings_states(cfg: config.EngineConfig) -> bool:
    """Whether external tokens come with the states and windows at their end. Then a local hit
    before them must hold only in full attention. With a store, the hit must hold in all groups."""
    return not cfg.store


def look_up(cfg: config.EngineConfig, engine: Engine, tokens: str, hit: int, external: int) -> Hit:
    """The hit of this length. Raises NotAllowed where the cache does not hold it.

    A hit must hold in every group. Where P provides the tokens after the hit, it also provides the
    states and windows, so the hit must hold only in the full-attention groups
    (`get_computed_blocks_for_connector`). With a store, the hit must hold in every group.
    """
    if not cfg.prefix_caching and hit:
        raise NotAllowed("there is a hit although prefix caching is off")
    if hit % cfg.hit_unit or hit > longest_possible(cfg, tokens):
        raise NotAllowed(f"a hit of {hit} tokens is not a whole number of blocks before the end")
    brought = external > 0 and connector_brings_states(cfg)
    whole = hit == 0 or holds(cfg, engine, tokens, hit)
    if not whole and not (brought and hit <= longest_full(cfg, engine, tokens)):
        raise NotAllowed(f"a hit of {hit} tokens does not hold in every group")
    if cfg.partial_block_hits and hit and not capacity.has_room_for_hit(cfg, hit, len(tokens)):
        raise NotAllowed(f"a hit of {hit} tokens has no room, copies included")
    own = tuple(
        hit if whole else longest_alone(cfg, engine, tokens, i, hit) for i in range(len(cfg.groups))
    )
    return Hit(hit, own, _boundary(cfg, engine, tokens, hit, external))


def _boundary(
    cfg: config.EngineConfig, engine: Engine, tokens: str, hit: int, external: int
) -> int:
    """The shared prefix boundary in tokens: where this prompt diverges from a cached one and a
    state should be kept. 0 for none. A request that takes the hit of full attention and gets the
    state from P has none."""
    if not cfg.marks_shared_prefix_boundaries or not cfg.prefix_caching:
        return 0
    full = longest_full(cfg, engine, tokens)
    looks = not external or cfg.store or not cfg.has_state or deeper(cfg, engine, tokens)
    return shared_prefix_boundary(full, hit) if looks else 0


def shared_prefix_boundary(alone: int, together: int) -> int:
    """Where the next chunk must also stop: the end of the prefix that full attention has cached
    (`alone`) beyond what all groups can serve (`together`), so that the next prompt with the same
    prefix finds a state there (vllm#37898). 0 for nowhere."""
    return alone if alone > together else 0
