"""The table of features, section by section: the names of each, when a cluster uses it, what it
cannot be combined with and why, and how a random cluster sets it.

The refusals, README's table and the random clusters are all made from it (see `registry`).
"""

import json
from typing import Any

from msgspec.structs import fields

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import NOT_MODELLED, Exclusion, Feature, Limit
from kvproof.model.config.features import checks, draws
from kvproof.model.config.random_settings import RandomSettings

NO_CONNECTOR = "which vLLM does not do beside a KV connector"


def setting(field: str, *values: object, **rest: Any) -> Feature[Any]:
    """A feature that is one field of an engine, or of a cluster, with another value than by
    default. In a random cluster it has one of these `values`. `rest` are the other fields of the
    feature, which has the name of its field if no other id is among them."""
    of = EngineConfig if field in EngineConfig.__struct_fields__ else Cluster
    default = next(each.default for each in fields(of) if each.name == field)

    def draw(settings: RandomSettings) -> None:
        value = values[0] if len(values) == 1 else settings.choose(values)
        (settings.on_cluster if of is Cluster else settings.on_engines)(**{field: value})

    known: dict[str, Any] = {
        "id": field,
        "options": f"`{field}`",
        "off": f"{field} {default if isinstance(default, str) else json.dumps(default)}",
        "draw": draw if values else None,
    }
    return Feature(of=of, used=lambda part: bool(getattr(part, field) != default), **(known | rest))


CACHE_GROUPS: tuple[Feature[Any], ...] = (
    # Full-attention groups: a request needs its blocks until it ends.
    Feature(
        id="full_attention",
        name="full attention",
        words="full attention; one to many groups of any kind",
        options="`kind` of a group",
        of=EngineConfig,
        used=lambda engine: any(g.kind == "full" for g in engine.groups),
    ),
    # Mamba: a block holds a state, and not KV per token.
    Feature(
        id="mamba",
        name="Mamba",
        words="Mamba, states cached at block boundaries (`align`)",
        options="`kind` of a group",
        of=EngineConfig,
        used=lambda engine: engine.has_state,
        on="an aligned Mamba group",
        off="no Mamba group",
    ),
    # Mamba of mode none: one state for each request, and nothing is cached.
    Feature(
        id="mamba_without_cache",
        name="Mamba of mode none",
        words="Mamba, one state for each request and no cache (`none`)",
        options="`mode` of a group",
        of=EngineConfig,
        used=lambda engine: any(not g.attention and not g.aligned for g in engine.groups),
        off="mode align",
        needs=("no_prefix_cache",),
    ),
    # Groups whose blocks have different numbers of tokens.
    Feature(
        id="unequal_block_sizes",
        name="unequal block sizes",
        words="unequal block sizes",
        options="`block_size` of a group",
        of=EngineConfig,
        used=lambda engine: len(engine.block_sizes) > 1,
        off="one block_size for all groups",
        limits=(Limit(checks.mamba_is_widest, "Mamba blocks narrower than others"),),
        draw=draws.unequal_block_sizes,
    ),
    # Sliding windows: a request frees the blocks before its window.
    Feature(
        id="windows",
        name="windows",
        words="sliding windows",
        options="`window` of a group",
        of=EngineConfig,
        used=lambda engine: any(g.kind == "window" for g in engine.groups),
        off="no window group",
    ),
)

PREFIX_CACHE: tuple[Feature[Any], ...] = (
    # Cached blocks that an external call evicts.
    setting(
        "evictions",
        True,
        name="evictions",
        words="cached blocks evicted from outside",
        chance=0.3,
    ),
    # Lookahead block hashes: the hash of a block covers the token after it.
    setting(
        "hash_lookahead_tokens",
        id="hash_lookahead",
        name="lookahead block hashes",
        words="block hashes that cover the next token",
        needs=("eagle",),
        exclusions=(
            Exclusion(beside=("pd",), because=NO_CONNECTOR),
            Exclusion(beside=("store",), because=NO_CONNECTOR),
            Exclusion(beside=("no_prefix_cache",), because="which leaves nothing to hash"),
            Exclusion(
                beside=("sessions",),
                because="which drop the last token of an answer, although the hash of the block "
                f"before may cover that token, {NOT_MODELLED}",
                live=True,
            ),
        ),
        draw=draws.hash_lookahead,
    ),
    # KV events: the engine reports each change of its cache.
    setting(
        "kv_events",
        True,
        name="KV events",
        words="KV events, replayed by a listener",
        options="`kv_events`, `reports_hits` of a job",
        exclusions=(
            Exclusion(
                beside=("partial_block_hits", "async_scheduling"),
                instead="steps_in_flight 1, or kv_events false",
            ),
        ),
        limits=(
            Limit(
                checks.parents_were_reported,
                "unequal block sizes, but for hits inside a block of Mamba; a window or "
                "Mamba group first",
            ),
        ),
    ),
    # An engine without a prefix cache.
    setting(
        "prefix_caching",
        False,
        id="no_prefix_cache",
        name="prefix_caching false",
        words="no prefix cache",
        on="prefix_caching false",
    ),
    # Hits that end inside a block, with an aligned Mamba group. The block is then copied.
    Feature(
        id="partial_block_hits",
        name="hits inside a block",
        words="hits that end inside a block, and their copies",
        options="`match_unit`, or unequal sizes",
        of=EngineConfig,
        used=lambda engine: engine.partial_block_hits,
        on="a Mamba block_size above match_unit",
        off="one block_size for all groups and match_unit 0",
        needs=("mamba",),
        exclusions=(
            Exclusion(beside=("pd",), live=True),
            Exclusion(beside=("store",), live=True),
            Exclusion(beside=("drafts",), live=True),
            Exclusion(beside=("eagle",), live=True),
            Exclusion(beside=("no_prefix_cache",), because="which leaves nothing to hit"),
        ),
        limits=(Limit(checks.match_unit_divides), Limit(checks.one_full_group, "two full groups")),
        draw=lambda settings: settings.on_engines(match_unit=settings.choose(draws.MATCH_UNITS)),
    ),
    # A state is also cached where prompts part, inside a block: an EAGLE hit resumes there.
    setting(
        "prefix_checkpoint",
        name="states where prompts part",
        words="states that are cached where prompts part, inside a block",
        needs=("eagle", "partial_block_hits"),
        draw=draws.prefix_checkpoint,
    ),
    # Resets of the prefix cache, of an idle engine or also under load.
    Feature(
        id="resets",
        name="resets",
        words="resets, also under load",
        options="`resets`, `resets_any_time`",
        of=Cluster,
        used=lambda cluster: cluster.resets or cluster.resets_any_time,
        draw=lambda settings: settings.on_cluster(
            resets=True, resets_any_time=settings.choose((False, True))
        ),
        chance=0.25,
    ),
    # Sparse retention: only some blocks of windows and states stay in the cache.
    setting(
        "retention",
        *draws.RETENTIONS,
        name="sparse retention",
        words="sparse or periodic retention",
        exclusions=(
            Exclusion(
                beside=("partial_block_hits", "windows"),
                because="which keeps a window where two prompts diverge and a state at the block "
                f"end before that, {NOT_MODELLED}",
                instead="retention null, or no window group",
            ),
            Exclusion(
                beside=("eagle",),
                where=lambda engine: any(
                    g.eagle and g.block_size != engine.hit_unit for g in engine.groups
                ),
                only="in smaller blocks than other groups",
                because=f"where the hit unit is longer than the drafter's blocks, {NOT_MODELLED}",
                instead="one block_size for all groups, or retention null",
            ),
        ),
        limits=(
            Limit(checks.ends_where_a_hit_can),
            Limit(checks.periodic_beside_full, "a period, with full groups only"),
        ),
    ),
)

ENGINE: tuple[Feature[Any], ...] = (
    # Async scheduling: a step is scheduled while an earlier step is in flight.
    setting(
        "steps_in_flight",
        2,
        id="async_scheduling",
        name="async scheduling",
        words="async scheduling",
        chance=0.4,
    ),
    # Chunked prefill: a step has a budget of tokens.
    Feature(
        id="chunked_prefill",
        name="chunked prefill",
        words="chunks below, at and above a block",
        options="`chunk_tokens`",
        of=EngineConfig,
        used=lambda _: True,
    ),
    # Speculative decoding: a drafter proposes tokens.
    setting(
        "drafts",
        *draws.DRAFTS,
        name="drafts",
        words="speculative decoding",
        on="drafts, the number of tokens that the drafter proposes",
        exclusions=(
            Exclusion(
                beside=("mamba",),
                where=checks.passes_two_boundaries,
                only="as many as a Mamba block has tokens",
                because="where one step may then pass two block boundaries while its worker keeps "
                "one state",
                instead="fewer drafts than a Mamba block has tokens",
            ),
        ),
        limits=(Limit(checks.sample_fits_a_step),),
    ),
    # EAGLE or MTP: the drafter has layers of its own in some cache groups.
    Feature(
        id="eagle",
        name="EAGLE",
        words="drafters with layers of their own (EAGLE, MTP)",
        options="`eagle` of a group",
        of=EngineConfig,
        used=lambda engine: any(g.eagle for g in engine.groups),
        on="a drafter, and eagle for a group",
        off="eagle false",
        needs=("drafts",),
        exclusions=(
            Exclusion(
                beside=("pd", "mamba"),
                because="where vLLM looks up hits with the token that P truncates, which kvproof "
                "does not model",
                live=True,
            ),
        ),
        limits=(Limit(checks.narrow_full, "full groups of wider blocks than others"),),
        draw=draws.eagle,
    ),
    # A limit on the tokens that one request gets in a step beside other requests.
    setting(
        "long_prefill_tokens",
        *draws.LONG_PREFILLS,
        id="long_prefill",
        name="a limit on long prefills",
        words="a limit on the tokens of one request in a step, beside others",
        limits=(Limit(checks.long_prefill_has_room, "a limit below a sample with its drafts"),),
        chance=0.15,
    ),
    # Requests are scheduled by the priority of their jobs.
    setting(
        "policy",
        "priority",
        id="priority",
        name="serving by priority",
        words="requests served by priority",
        options="`policy`, `priority` of a job",
        on="policy priority for an engine",
        job_field="priority",
    ),
    # A limit on the number of requests that run at the same time.
    setting(
        "max_requests",
        1,
        2,
        id="request_limit",
        name="a limit on running requests",
        words="a limit on running requests",
    ),
    # An external store, which loads prefixes within the step.
    setting(
        "store",
        True,
        name="a store",
        words="loads within the step, from a store",
        exclusions=(Exclusion(beside=("pd",), live=True),),
    ),
    # A watermark: blocks that an admission leaves free where another request runs.
    setting(
        "watermark_blocks",
        *draws.WATERMARKS,
        id="watermark",
        name="a watermark",
        words="blocks kept free at an admission beside running requests",
        limits=(Limit(checks.below_the_pool),),
        chance=0.15,
    ),
    # Whether a request is admitted only where all its tokens fit.
    setting(
        "reserve_whole_prompt",
        True,
        False,
        id="whole_prompt",
        name="a choice of admission",
        words="admission where the whole prompt fits, or only its first chunk",
        chance=0.3,
    ),
)

PREFILL_DECODE: tuple[Feature[Any], ...] = (
    # Transfers, or loads of a store, that fail.
    setting(
        "failures",
        name="failing loads",
        words="P/D transfers, or loads of a store, that fail; both policies of failure",
        options="`failures`, `load_failure`",
        exclusions=(
            Exclusion(
                beside=("store",),
                where=checks.of_more_than_one_full_group,
                only="unless there is one group, of full attention, or P/D",
                because="and vLLM's report of the failed blocks means something only for one "
                "group, of full attention",
                instead="one full group, or failures 0",
            ),
            Exclusion(
                beside=("store", "drafts", "async_scheduling"),
                where=checks.of_a_store,
                only="unless there is P/D",
            ),
            Exclusion(beside=("sessions", "async_scheduling"), live=True),
        ),
        draw=draws.failures,
    ),
    # Follow-up turns: D keeps what it computed, and P loads it for the next turn.
    setting(
        "follow_up_turns",
        True,
        name="follow-up turns",
        words="follow-up turns: D keeps what it computed, and P loads it (`bidirectional_kv_xfer`)",
        options="`follow_up_turns`, `follows` of a job",
        on="follow_up_turns true",
        needs=("pd",),
        job_field="follows",
        exclusions=(
            Exclusion(
                beside=("push",), because="and vLLM's push connector has no reverse transfer"
            ),
            Exclusion(beside=("drafts", "mamba"), live=True),
        ),
        limits=(Limit(checks.turns_follow),),
    ),
    # P and D have unequal numbers of kernel blocks in a block.
    Feature(
        id="kernel_blocks",
        name="unequal physical_per_logical",
        words="unequal kernel blocks per block of P and D",
        options="`physical_per_logical`",
        of=Cluster,
        used=lambda cluster: len({e.physical_per_logical for e in cluster.engines}) > 1,
        off="one physical_per_logical for both engines",
        exclusions=(
            Exclusion(
                beside=("mamba",),
                where=lambda cluster: cluster.decode.prefix_caching,
                only="while D caches prefixes",
                because="which vLLM's handshake refuses where D caches prefixes",
                instead="prefix_caching false for D, or no Mamba group",
            ),
            Exclusion(
                beside=("windows",),
                where=checks.begins_inside,
                only="unless P's is a multiple of D's",
                because="where P keeps fewer tokens than a block of D may need",
                instead="a physical_per_logical of P that is a multiple of D's, or no window group",
            ),
            Exclusion(
                beside=("push",),
                because="and vLLM then ends no transfer: D's worker dies at the end of the first "
                "one, or P's worker never begins it",
            ),
            Exclusion(beside=("follow_up_turns",), live=True),
        ),
        idle_without=("pd",),
        draw=draws.kernel_blocks,
    ),
    # Reads whose end is never reported; P's lease ends instead.
    setting(
        "losses",
        True,
        id="lost_reads",
        name="lost reads",
        words="lost reads, and leases that end",
        idle_without=("pd",),
    ),
    # P only sends KV, and D only receives it: the roles that deployments give them.
    setting(
        "one_way",
        name="one-way roles",
        words="P as `kv_producer` and D as `kv_consumer`, otherwise both as `kv_both`",
        needs=("pd",),
        exclusions=(
            Exclusion(
                beside=("follow_up_turns",),
                because="and P, which then loads from D, must be kv_both",
                live=True,
            ),
        ),
        draw=draws.one_way,
        chance=0.5,
    ),
    # P/D: a request is prefilled on one engine and decoded on another.
    Feature(
        id="pd",
        name="P/D",
        words="P/D: a prefill and a decode engine, over NIXL pull",
        options="`role`",
        of=EngineConfig,
        used=lambda engine: engine.connected,
        on="one prefill and one decode engine",
        off="role both",
        draw=draws.pd,
        chance=0.5,
    ),
    # P/D over NIXL push: P writes to the blocks of D.
    setting(
        "transfer",
        "push",
        id="push",
        name="push",
        words="P/D over NIXL push",
        needs=("pd",),
    ),
    # A worker's report that no request waits for.
    setting(
        "stray",
        True,
        id="stray_reports",
        name="stray reports",
        words="a worker's report that no request waits for",
        needs=("pd",),
    ),
)

TRAFFIC: tuple[Feature[Any], ...] = (
    # Users who abort their request before it is finished.
    setting(
        "aborts",
        True,
        name="aborts",
        words="requests that are aborted",
        chance=0.5,
    ),
    # Models that end answers by themselves, before these have their largest length.
    Feature(
        id="stops",
        name="answers that stop early",
        words="answers that the model ends",
        options="`stops` of a job",
        of=Cluster,
        used=lambda cluster: any(job.stops for job in cluster.jobs),
        off="stops 0",
    ),
    # Prompts that are sent as embeddings instead of token ids.
    Feature(
        id="embeddings",
        name="prompts of embeddings",
        words="prompts of embeddings",
        options="`embeds` of a job",
        of=Cluster,
        used=lambda cluster: any(job.embeds for job in cluster.jobs),
        off="embeds false",
        exclusions=(
            Exclusion(
                beside=("kv_events",), because="which could not name their tokens", live=True
            ),
            Exclusion(beside=("follow_up_turns",), live=True),
            Exclusion(
                beside=("sessions",),
                because="where vLLM asserts that the prompt of a session has token ids",
            ),
        ),
        limits=(Limit(checks.tokens_apart),),
    ),
    # Requests with a salt or a LoRA adapter, whose KV nobody else may read.
    setting(
        "extra_keys",
        True,
        name="extra keys",
        words="requests with a salt or a LoRA adapter",
        options="`extra_keys`, `extra_key` of a job",
        on="extra_keys true",
        job_field="extra_key",
        exclusions=(
            Exclusion(beside=("kv_events",), because="which name token ids alone", live=True),
        ),
        limits=(Limit(checks.keyed_letters),),
    ),
    # Prompts that the pool cannot hold.
    setting(
        "oversized",
        True,
        name="oversized prompts",
        words="prompts that the pool cannot hold",
        exclusions=(Exclusion(beside=("pd",), live=True),),
    ),
    # Streaming sessions: a prompt arrives in parts, each after the answer to the part before.
    setting(
        "sessions",
        True,
        name="sessions",
        words="streaming sessions",
        options="`sessions`, `parts` of a job",
        on="sessions true",
        job_field="parts",
        exclusions=(
            Exclusion(beside=("pd",), live=True),
            Exclusion(beside=("drafts", "mamba"), live=True),
            Exclusion(
                beside=("drafts",),
                where=lambda cluster: not cluster.prefill.overlaps,
                only="without async scheduling",
                because=f"in steps that do not overlap, {NOT_MODELLED}",
                instead="sessions false, drafts 0 or steps_in_flight 2",
                live=True,
            ),
        ),
    ),
)

SECTIONS: dict[str, tuple[Feature[Any], ...]] = {
    "cache groups": CACHE_GROUPS,
    "prefix cache": PREFIX_CACHE,
    "engine": ENGINE,
    "P/D": PREFILL_DECODE,
    "traffic": TRAFFIC,
}
"""The features by section, in the order of the pages, and by name in each."""
