"""Checks of the table of features: what an engine or a cluster may not have beside a feature.

A check of a limit returns the refusal, or None where the limit holds. A check of an exclusion says
whether the exclusion applies.
"""

import math

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.extra_keys import CAPITALS, FIRST, LETTERS
from kvproof.model.config.feature import Refusal
from kvproof.model.config.job import Job


def mamba_is_widest(engine: EngineConfig) -> Refusal | None:
    """Refuse an engine whose Mamba blocks are narrower than those of another group."""
    widest = max(engine.block_sizes, default=0)
    if any(g.aligned and g.block_size < widest for g in engine.groups):
        return Refusal(
            f"Engine {engine.name} has a Mamba group of narrower blocks than {widest}, which "
            "kvproof does not model",
            f"block_size {widest} for every Mamba group",
        )
    return None


def parents_were_reported(engine: EngineConfig) -> Refusal | None:
    """Refuse an engine whose KV events could name a parent block that was never reported."""
    if not engine.kv_events:
        return None
    first = engine.groups[0]
    if first.kind != "full" or engine.hash_unit < engine.hit_unit:
        return Refusal(
            f"A KV event of engine {engine.name} could name a parent that full attention never "
            "reported",
            "a full group first and one block_size for all groups, or kv_events false",
        )
    if engine.partial_block_hits and first.block_size > engine.hash_unit:
        return Refusal(
            f"A KV event of engine {engine.name} could name a parent inside a block of full "
            "attention, which never reported it",
            f"block_size {engine.hash_unit} for the full group, or kv_events false",
        )
    return None


def match_unit_divides(engine: EngineConfig) -> Refusal | None:
    """Refuse a unit of matches that does not divide every block size."""
    unit, sizes = engine.match_unit, engine.block_sizes
    if unit and (engine.aligned_group is None or any(size % unit for size in sizes)):
        return Refusal(
            f"The match_unit {unit} of engine {engine.name} requires an aligned Mamba group, and "
            "must divide every block size",
            f"0, or such a group and a divisor of {math.gcd(*sizes)}",
        )
    return None


def one_full_group(engine: EngineConfig) -> Refusal | None:
    """Refuse hits inside a block where the engine has no full group, or several."""
    full = [g for g in engine.groups if g.kind == "full"]
    if engine.partial_block_hits and len(full) != 1:
        return Refusal(
            f"Hits of engine {engine.name} may end inside a block, which kvproof models only with "
            "one full group",
            "such groups, or one block_size for all groups and match_unit 0",
        )
    return None


def ends_where_a_hit_can(engine: EngineConfig) -> Refusal | None:
    """Refuse a period of retention that ends where no hit can end."""
    unit = max(engine.hit_unit, *(g.block_size for g in engine.groups))
    if engine.retention is not None and engine.retention % unit:
        return Refusal(
            f"The retention {engine.retention} of engine {engine.name} is not where a hit can end",
            f"a multiple of {unit}, or 0",
        )
    return None


def periodic_beside_full(engine: EngineConfig) -> Refusal | None:
    """Refuse a period of retention where full attention keeps all blocks."""
    if engine.retention and all(g.kind == "full" for g in engine.groups):
        return Refusal(
            f"Engine {engine.name} keeps blocks every {engine.retention} tokens and has only full "
            "attention, which keeps them all",
            "retention 0, or another group",
        )
    return None


def passes_two_boundaries(engine: EngineConfig) -> bool:
    """Whether one step with drafts may pass two boundaries of Mamba blocks."""
    state = engine.aligned_group
    return state is not None and engine.drafts >= state.block_size


def sample_fits_a_step(engine: EngineConfig) -> Refusal | None:
    """Refuse a step that has no room for a sampled token and its drafts."""
    if engine.drafts and engine.chunk_tokens <= engine.drafts:
        return Refusal(
            f"A step of engine {engine.name} has {engine.chunk_tokens} tokens, and a sample with "
            f"its {engine.drafts} drafts needs more: vLLM then never admits a prompt that is "
            "almost completely cached",
            f"chunk_tokens of at least {engine.drafts + 1}, or fewer drafts",
        )
    return None


def narrow_full(engine: EngineConfig) -> Refusal | None:
    """Refuse a drafter's layers in a full group whose blocks are wider than others."""
    wide = (g for g in engine.groups if g.kind == "full" and g.block_size > engine.hash_unit)
    if any(g.eagle for g in wide):
        return Refusal(
            f"A drafter has layers in a full group of engine {engine.name} whose blocks are "
            "wider than others: vLLM then caches a different last block of a prompt, which kvproof "
            "does not model",
            "the smallest block_size for that group, or eagle false",
        )
    return None


def long_prefill_has_room(engine: EngineConfig) -> Refusal | None:
    """Refuse a limit of long prompts below a sampled token and its drafts."""
    if 0 < engine.long_prefill_tokens <= engine.drafts:
        return Refusal(
            f"Engine {engine.name} gives a request {engine.long_prefill_tokens} tokens in a step, "
            f"and a sample with its {engine.drafts} drafts needs more",
            f"long_prefill_tokens of at least {engine.drafts + 1}, or 0",
        )
    return None


def below_the_pool(engine: EngineConfig) -> Refusal | None:
    """Refuse a watermark of as many blocks as the pool has."""
    if engine.watermark_blocks >= engine.num_blocks:
        return Refusal(
            f"Engine {engine.name} keeps {engine.watermark_blocks} of {engine.num_blocks} blocks "
            "free",
            f"watermark_blocks of at most {engine.num_blocks - 1}",
        )
    return None


def of_a_store(cluster: Cluster) -> bool:
    """Whether loads of a store fail. Of a pair with stores, transfers fail."""
    return not cluster.disaggregated


def of_more_than_one_full_group(cluster: Cluster) -> bool:
    """Whether loads of a store fail on an engine with other groups than one of full attention."""
    return of_a_store(cluster) and [g.kind for g in cluster.prefill.groups] != ["full"]


def turns_follow(cluster: Cluster) -> Refusal | None:
    """Refuse the first job that does not continue the conversation of the job it follows."""
    if not cluster.follow_up_turns:
        return None
    turns = enumerate(cluster.jobs)
    return next(filter(None, (_turn(job, cluster.jobs[:index]) for index, job in turns)), None)


def _turn(job: Job, before: tuple[Job, ...]) -> Refusal | None:
    if not job.follows:
        return None
    if any(j.follows == job.follows for j in before):
        return Refusal(
            f"Job {job.name} follows {job.follows}, but another job follows it already",
            "the name of an earlier job that no other job follows",
        )
    first = next(j for j in before if j.name == job.follows)
    if any(a != b for a, b in zip(job.prompt, first.conversation, strict=False)):
        return Refusal(
            f"Job {job.name} follows {first.name}, but its prompt differs from that prompt and "
            "answer, which vLLM expects the router to check (vllm#43094)",
            f"a prompt that begins as {first.conversation!r} or is its beginning, or leave "
            "follows out",
        )
    return None


def begins_inside(cluster: Cluster) -> bool:
    """Whether a block of D can begin inside a block of P. P keeps whole blocks of a window. Where
    D's block can begin before them, neither engine has the KV for its first part, and D would cache
    the block."""
    return cluster.prefill.physical_per_logical % cluster.decode.physical_per_logical > 0


def tokens_apart(cluster: Cluster) -> Refusal | None:
    """Refuse token ids that an embedded token could be: embedded tokens are capitals, so that they
    differ from all token ids."""
    embedded = {token: job.name for job in cluster.jobs if job.embeds for token in job.prompt}
    for token, name in embedded.items():
        if len(token.upper()) > 1 or token.upper() == token.lower():
            wrong = f"Job {name} embeds the token {token!r}, which has no capital"
            return Refusal(wrong, "letters")
    capitals = {token.upper() for token in embedded}
    for job in cluster.jobs:
        ids = "".join((*job.parts, "" if job.embeds else job.prompt))
        same = next((token for token in ids if token in capitals), None)
        if same is not None:
            return Refusal(
                f"Job {job.name} has the token id {same!r}, and another prompt embeds this token",
                "small letters for token ids",
            )
    return None


def keyed_letters(cluster: Cluster) -> Refusal | None:
    """Refuse tokens of jobs with extra keys that are no letters: only letters have other forms, and
    nobody else may use these."""
    firsts = (*FIRST.values(), *CAPITALS.values())
    others = {chr(ord(first) + place) for first in firsts for place in range(len(LETTERS))}
    for job in cluster.jobs:
        tokens = {*job.prompt, *"".join(job.parts)} - ({"."} if job.follows else set())
        strange = sorted(tokens & others or tokens - set(LETTERS))
        if strange and (job.extra_key or strange[0] in others):
            return Refusal(
                f"Job {job.name} has the token {strange[0]!r}, which has no meaning here",
                "small letters from a to z",
            )
    return None
