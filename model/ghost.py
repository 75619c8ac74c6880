"""Ghost state after an event: a function of the observed states around it and of the event.

It uses no rule of the reference, so that a mistake in the reference cannot hide here. An entry of
`served` means that a prompt's prefill completed and that nothing of it was evicted since. A prompt
is forgotten when a cache entry of it is lost, and all are when the cache is reset. A prompt that
lost a cache entry during its prefill has no entry. So it never claims too much.
"""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.events import Complete, Event
from kvproof.model.ghost_state import PREFIX_EVICTED, Ghost, Served
from kvproof.model.kv_events import Keys, replayed
from kvproof.model.state import COUNTS, Cached, Engine, Key, Request
from kvproof.model.step import Admission, Effects, Step


def remembered(cluster: config.Cluster, step: Step) -> Step:
    """The step with the ghost state of each engine that it changed, and with the prompts that were
    served before the cache look-up of each admission."""
    before, event, effects, state = step
    if effects.admissions:
        looked_up = (
            a._replace(served=served_at(before.engine(a.engine), a)) for a in effects.admissions
        )
        effects = effects._replace(admissions=tuple(looked_up))
    for old, new in zip(before.engines, state.engines, strict=True):
        if new is not old:
            ghost = after(cluster, old, new, event, effects)
            if ghost != new.ghost:
                state = state.with_engine(new._replace(ghost=ghost))
    return Step(before, event, effects, state)


def after(
    cluster: config.Cluster, before: Engine, after: Engine, event: Event, effects: Effects
) -> Ghost:
    """The ghost state of an engine after an event, from its ghost state before the event."""
    cfg = cluster.engine(before.name)
    ours = getattr(event, "engine", cluster.decode.name) == cfg.name
    lost = lost_entries(before.cached, after.cached)
    admitted = [a for a in effects.admissions if a.engine == cfg.name]
    served = () if cfg.name in effects.resets else _served(before, event if ours else None)
    return Ghost(
        _without(served, lost),
        _mirror(before, effects if ours else Effects()),
        _shared(cluster, before, after, admitted, lost),
    )


def served_at(before: Engine, admission: Admission) -> tuple[Served, ...]:
    """The prompts that were served, with nothing evicted, when a request looked up the cache. Other
    requests may have taken blocks earlier in the same step."""
    return _without(before.ghost.served, lost_entries(before.cached, admission.cached))


def _without(served: tuple[Served, ...], lost: Sequence[tuple[Key, int]]) -> tuple[Served, ...]:
    """The prompts of which no cache entry was lost: neither one of their own prefix, nor one of a
    longer prompt, whose block may serve them too."""
    if not lost or not served:
        return served
    prefixes = {prefix for (_, prefix), _ in lost}
    return tuple(
        each
        for each in served
        if not any(each.prompt.startswith(p) or p.startswith(each.prompt) for p in prefixes)
    )


def _served(before: Engine, event: Event | None) -> tuple[Served, ...]:
    if not isinstance(event, Complete):
        return before.ghost.served
    shared, sampled = dict(before.ghost.shared), _sampled_for(before, event)
    new = {
        Served(r.prompt, shared.get(r.id, 0))
        for r in before.requests
        if not r.output and r.id in sampled
    }
    whole = {served for served in new if served.shared != PREFIX_EVICTED}
    return tuple(sorted({*before.ghost.served, *whole})) if whole else before.ghost.served


def _sampled_for(before: Engine, event: Complete) -> set[str]:
    """The requests that get a token from the step whose output arrives."""
    oldest = before.steps[0] if before.steps else ()
    names = {f.request for f in oldest if f.samples and f.fate == COUNTS}
    for name, _ in before.step or ():
        request = before.request(name)
        if request.computed >= len(request.tokens):
            names.add(name)
    return names - {event.failed}


def _mirror(before: Engine, effects: Effects) -> Keys:
    """The keys that a listener to KV events assumes to be cached after the event. Only events of an
    engine report changes of its cache; events of a transfer do not."""
    if not effects.reports:
        return before.ghost.mirror
    return replayed(before.ghost.mirror, effects.reports)


def _shared(
    cluster: config.Cluster,
    before: Engine,
    after: Engine,
    admitted: Sequence[Admission],
    lost: Sequence[tuple[Key, int]],
) -> tuple[tuple[str, int], ...]:
    if not admitted and not lost and after.requests is before.requests:
        return before.ghost.shared
    cfg, known = cluster.engine(before.name), dict(before.ghost.shared)
    for admission in admitted:
        known[admission.request] = shared_with(cfg, served_at(before, admission), admission)
    known = {r.id: known.get(r.id, 0) if any(r.tables) else 0 for r in after.requests}
    if lost:
        evicted = [key[1] for key, block in lost if not _still_there(cfg, after, key, block)]
        again = cluster.sessions
        known = {r.id: _after_loss(r, known[r.id], evicted, again) for r in after.requests}
    return tuple(known.items())


def _still_there(cfg: config.EngineConfig, engine: Engine, key: Key, block: int) -> bool:
    """Whether another block is cached under the key, or the block is now cached under a longer
    prefix that ends in the same block of the prompt: it was filled further. A block that was
    evicted may come next in the same prompt."""
    index, tokens = key
    size = cfg.groups[index].block_size
    end = -(-len(tokens) // size) * size
    longer = any(
        k[0] == index and k[1].startswith(tokens) and len(k[1]) <= end
        for k in engine.blocks[block].keys
    )
    return longer or bool(engine.blocks_for(key))


def _after_loss(request: Request, shared: int, evicted: list[str], again: bool) -> int:
    """What a request shares after a cache entry was lost: nothing that was served is left. The
    computed part of its own prompt may be evicted too. In a session it computes prompts `again`,
    after it had output: each is the rest of a longer one."""
    computing = any(request.tables) and (again or not request.output)
    own = any(map(request.prompt.startswith, evicted))
    return PREFIX_EVICTED if computing and (own or shared == PREFIX_EVICTED) else 0


def shared_with(cfg: config.EngineConfig, served: Sequence[Served], admission: Admission) -> int:
    """The longest prefix, in tokens of whole blocks, that a served prompt shares with an admitted
    one. 0 where full attention has cached more or less than that, because then the prompts diverge
    elsewhere. 0 also where a hit is longer, or a store has loaded tokens, because the request may
    have started after that point."""
    tokens = admission.tokens
    if admission.external and cfg.store:
        return 0
    longest = max((common_prefix(s.prompt, tokens) for s in served), default=0)
    # The last token is computed. With an EAGLE drafter the prompts must also share the block after
    # a hit, or the token after it.
    alike_after_hit = cfg.eagle_drop_tokens or cfg.hash_lookahead_tokens
    shared = _longest_hit(cfg, longest if alike_after_hit else min(longest + 1, len(tokens)))
    if not shared or shared != _longest_in_full(cfg, admission.cached, tokens):
        return 0
    if cfg.partial_block_hits and cfg.aligned_group is not None:
        shared -= shared % cfg.aligned_group.block_size
    return shared if admission.hit <= shared else 0


def _longest_hit(cfg: config.EngineConfig, tokens: int) -> int:
    """The longest hit, in tokens, in `tokens` tokens that leaves one token to compute, or a block
    to match."""
    left = max(tokens - (cfg.eagle_drop_tokens or 1), 0)
    return left - left % cfg.hit_unit


def _longest_in_full(cfg: config.EngineConfig, cached: Cached, tokens: str) -> int:
    """The longest hit, in tokens, for which each full-attention group has all blocks cached; 0
    without full-attention groups."""
    full = [index for index, group in enumerate(cfg.groups) if group.kind == "full"]
    keys = {key for key, blocks in cached if blocks}
    for length in range(_longest_hit(cfg, len(tokens)) if full else 0, 0, -cfg.hit_unit):
        if all(_has_all(cfg, index, keys, tokens, length) for index in full):
            return length
    return 0


def _has_all(
    cfg: config.EngineConfig, index: int, keys: set[Key], tokens: str, length: int
) -> bool:
    """Whether a full-attention group has all blocks of a hit cached: the whole blocks, one more
    block where the group has drafter layers, and, where the hit ends inside a block, that block
    under this or a longer prefix."""
    size, ahead = cfg.groups[index].block_size, cfg.hash_lookahead_tokens
    whole, inside = divmod(length, size)
    blocks = whole if inside else whole + cfg.drops_match(cfg.groups[index])
    if not all((index, tokens[: n * size + ahead]) in keys for n in range(1, blocks + 1)):
        return False
    last = min((whole + 1) * size, len(tokens) - 1)
    return not inside or any((index, tokens[:end]) in keys for end in range(length, last + 1))


def common_prefix(a: str, b: str) -> int:
    """The number of tokens that two prompts share from the start."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def lost_entries(before: Cached, after: Cached) -> tuple[tuple[Key, int], ...]:
    """The cache entries that `before` has and `after` lacks: pairs of a key and a block that was
    cached under it."""
    if before is after:
        return ()
    kept = {(key, block) for key, blocks in after for block in blocks}
    return tuple((k, b) for k, blocks in before for b in blocks if (k, b) not in kept)
