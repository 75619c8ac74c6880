"""What an engine can be, and what kvproof models of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvproof.model.config.limits import within
from kvproof.model.errors import UsageError, unknown

if TYPE_CHECKING:
    from kvproof.model.config import Engine

ROLES = ("both", "prefill", "decode")
POLICIES = ("fcfs", "priority")


def check(engine: Engine) -> None:
    """Raises UsageError for an engine that cannot be, or that is not modelled."""
    if engine.role not in ROLES:
        raise unknown("engine role", engine.role, ROLES)
    if engine.policy not in POLICIES:
        raise unknown("policy", engine.policy, POLICIES)
    within(f"max_requests of engine {engine.name}", engine.max_requests, 1, "max_requests")
    if not engine.groups:
        raise UsageError(
            f"Engine {engine.name} has no cache group. Write at least one, for example "
            "a full group of block size 2."
        )
    within(f"num_blocks of engine {engine.name}", engine.num_blocks, 2, "num_blocks")
    within(f"chunk_tokens of engine {engine.name}", engine.chunk_tokens, 1, "chunk_tokens")
    ratio = engine.physical_per_logical
    within(f"physical_per_logical of engine {engine.name}", ratio, 1, "physical_per_logical")
    depth = engine.steps_in_flight
    within(f"steps_in_flight of engine {engine.name}", depth, 1, "steps_in_flight")
    sizes = {g.block_size for g in engine.groups if g.kind != "mamba" or g.aligned}
    widest = max(sizes, default=1)
    if any(widest % size for size in sizes):
        raise UsageError(
            f"The block sizes {sorted(sizes)} of engine {engine.name} do not divide one another. "
            f"Write sizes that divide the largest, {widest}."
        )
    if any(g.attention and g.block_size % ratio for g in engine.groups):
        raise UsageError(
            f"A block size of engine {engine.name} is not a multiple of its "
            f"physical_per_logical {ratio}. Write a ratio that divides every block size."
        )
    if engine.prefix_caching and any(g.kind == "mamba" and not g.aligned for g in engine.groups):
        raise UsageError(
            f"Engine {engine.name} caches prefixes beside a Mamba group of mode none, which "
            "vLLM does not allow. Write mode align, or prefix_caching false."
        )
    if engine.store and engine.role != "both":
        raise UsageError(
            f"Engine {engine.name} has a store beside a hand-over, which kvproof does not model. "
            "Write role both, or store false."
        )
    _check_partial(engine, sizes)
    _check_retention(engine)
    _check_drafts(engine)
    _check_hash_lookahead(engine)
    _check_events(engine)


def _check_partial(engine: Engine, sizes: set[int]) -> None:
    if engine.match_unit:
        within(f"match_unit of engine {engine.name}", engine.match_unit, 1, "block_size")
        if engine.aligned_group is None or any(size % engine.match_unit for size in sizes):
            raise UsageError(
                f"The match_unit {engine.match_unit} of engine {engine.name} is for an aligned "
                f"Mamba group, and divides every block size. Write 0, or add such a group and "
                f"write a divisor of {math.gcd(*sizes)}."
            )
    if engine.aligned_group is None or (len(sizes) == 1 and engine.hash_unit in sizes):
        return
    if any(g.aligned and g.block_size < max(sizes) for g in engine.groups):
        raise UsageError(
            f"Engine {engine.name} has a Mamba group of narrower blocks than {max(sizes)}, which "
            f"kvproof does not model. Write {max(sizes)} for every Mamba group."
        )
    full = [g for g in engine.groups if g.kind == "full"]
    wide = [g for g in engine.groups if g.kind == "window" and g.block_size > engine.hash_unit]
    if len(full) != 1 or wide:
        raise UsageError(
            f"Hits of engine {engine.name} may end inside a block, which kvproof models beside "
            f"one full group and windows in blocks of {engine.hash_unit}. Write such groups, or "
            "one block_size for all and match_unit 0."
        )
    if engine.connected or engine.store or engine.drafts:
        raise UsageError(
            f"Hits of engine {engine.name} may end inside a block beside a connector or drafts, "
            "which kvproof does not model. Write an engine without these, or one block_size for "
            "all and match_unit 0."
        )
    if not engine.prefix_caching:
        raise UsageError(
            f"Hits of engine {engine.name} may end inside a block, and its prefix cache is off. "
            "Write prefix_caching true, or one block_size for all and match_unit 0."
        )


def _check_events(engine: Engine) -> None:
    if not engine.kv_events:
        return
    if engine.partial_block_hits and engine.overlaps:
        raise UsageError(
            f"Hits of engine {engine.name} may end inside a block beside KV events and overlapping "
            "steps, which kvproof does not model. Write steps_in_flight 1, or kv_events false."
        )
    first = engine.groups[0]
    if first.kind != "full" or engine.hash_unit < engine.hit_unit:
        raise UsageError(
            f"A KV event of engine {engine.name} could name a parent that full attention never "
            "told. Write a full group first and one block_size for all groups, or kv_events false."
        )
    if engine.partial_block_hits and first.block_size > engine.hash_unit:
        raise UsageError(
            f"A KV event of engine {engine.name} could name a parent inside a block of full "
            f"attention, which never told it. Write block_size {engine.hash_unit} for the full "
            "group, or kv_events false."
        )


def _check_retention(engine: Engine) -> None:
    if engine.retention is None:
        return
    within(f"retention of engine {engine.name}", engine.retention, 0, "retention")
    if not engine.prefix_caching:
        raise UsageError(
            f"Engine {engine.name} has a retention and caches no prefixes that it could keep. "
            "Write retention null, or prefix_caching true."
        )
    if engine.store:
        raise UsageError(
            f"Engine {engine.name} has a store beside sparse retention, which kvproof does not "
            "model. Write retention null, or store false."
        )
    unit = max(engine.hit_unit, *(g.block_size for g in engine.groups))
    if engine.retention % unit:
        raise UsageError(
            f"The retention {engine.retention} of engine {engine.name} is not where a hit can end. "
            f"Write a multiple of {unit}, or 0."
        )
    if engine.partial_block_hits and any(g.kind == "window" for g in engine.groups):
        raise UsageError(
            f"Hits of engine {engine.name} may end inside a block beside windows and a retention, "
            "which keeps a window where two prompts part and a state at the end of its block "
            "before: kvproof does not model that. Write retention null, or no window."
        )
    if engine.retention and all(g.kind == "full" for g in engine.groups):
        raise UsageError(
            f"Engine {engine.name} keeps blocks every {engine.retention} tokens and has only full "
            "attention, which keeps them all. Write retention 0, or add another group."
        )


def _check_drafts(engine: Engine) -> None:
    within(f"drafts of engine {engine.name}", engine.drafts, 0, "drafts")
    if not engine.drafts and any(g.eagle for g in engine.groups):
        raise UsageError(
            f"A group of engine {engine.name} is marked eagle, and there is no drafter. "
            "Write drafts, the number of tokens it proposes."
        )
    if any(g.eagle and g.kind == "full" and g.block_size > engine.hash_unit for g in engine.groups):
        raise UsageError(
            f"A drafter has layers in a full group of engine {engine.name} whose blocks are "
            "wider than others: vLLM then caches another end of a prompt, which kvproof does "
            "not cover yet. Write the smallest block_size for that group, or eagle false."
        )
    if engine.connected and engine.lookahead and engine.has_state:
        raise UsageError(
            f"A drafter has layers on engine {engine.name}, which hands over beside a Mamba "
            "group: vLLM then finds hits by the token that P cuts off, which kvproof does not "
            "cover yet. Write eagle false, or no Mamba group."
        )
    eagle = {g.block_size for g in engine.groups if g.eagle}
    if engine.retention is not None and eagle - {engine.hit_unit}:
        raise UsageError(
            f"Engine {engine.name} has a retention and a drafter in groups of block size "
            f"{min(eagle)}, where hits are multiples of {engine.hit_unit}, which kvproof does "
            "not cover yet. Write one block_size for all groups, or retention null."
        )
    if engine.drafts and engine.chunk_tokens <= engine.drafts:
        raise UsageError(
            f"A step of engine {engine.name} has {engine.chunk_tokens} tokens, and a sample with "
            f"its {engine.drafts} drafts needs more: vLLM then admits no prompt that was nearly "
            f"all cached. Write chunk_tokens of at least {engine.drafts + 1}, or fewer drafts."
        )
    state = engine.aligned_group
    if state is not None and engine.drafts >= state.block_size:
        raise UsageError(
            f"A step of engine {engine.name} with {engine.drafts} drafts may pass two boundaries "
            f"of its Mamba blocks of {state.block_size} tokens, and its worker keeps one "
            f"state. Write less than {state.block_size} drafts."
        )


def _check_hash_lookahead(engine: Engine) -> None:
    tokens = engine.hash_lookahead_tokens
    within(f"hash_lookahead_tokens of engine {engine.name}", tokens, 0, "hash_lookahead_tokens")
    if not tokens:
        return
    if not engine.lookahead:
        raise UsageError(
            f"A block hash of engine {engine.name} covers the next token, and no drafter has "
            "layers that depend on it. Use hash_lookahead_tokens 0, or drafts and a group marked "
            "eagle."
        )
    if engine.has_connector:
        raise UsageError(
            f"A block hash of engine {engine.name} covers the next token, which vLLM does not do "
            "beside a KV connector. Use hash_lookahead_tokens 0, or role both and store false."
        )
    if not engine.prefix_caching:
        raise UsageError(
            f"A block hash of engine {engine.name} covers the next token, and its prefix cache is "
            "off. Use hash_lookahead_tokens 0, or prefix_caching true."
        )
