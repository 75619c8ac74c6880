"""The connectors of vLLM that the kit drives: the settings to drive each with, and its code."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.fakes.clock import LEASE_S
from kvproof.model.plans.connector import LOAD_TIERS, Another, Options, TransferParams, Unlike

V1 = "distributed/kv_transfer/kv_connector/v1/"

OFFLOADED = {"cpu_bytes_to_use": 2**16}
"""Room for 16 chunks of a page of memory each: a few prompts, so that chunks are evicted."""


class Shipped(NamedTuple):
    """A connector of vLLM. `home` has the files and folders of its code, below the package `vllm`:
    a change in one of them is a change of this connector. With `dummy`, it fills blocks with values
    that are wrong on purpose, to measure decoding."""

    subject: TestedConnector
    home: tuple[str, ...]
    dummy: bool = False


def _child(subject: TestedConnector) -> dict[str, object]:
    """The settings of a connector inside a MultiConnector."""
    extra = dict(subject.extra)
    return {
        "kv_connector": subject.name,
        "kv_role": "kv_both",
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": extra,
    }


def _several(*subjects: TestedConnector) -> TestedConnector:
    """A MultiConnector of these connectors. It loads from the first connector that has a part of
    the prompt, so a prompt that this one keeps is offered."""
    return _with_children({"connectors": [_child(each) for each in subjects]}, subjects)


def _with_children(
    extra: Mapping[str, Any], subjects: Sequence[TestedConnector], keeps_prompts: bool = False
) -> TestedConnector:
    """The MultiConnector with these settings, which is driven as its connectors have to be. Beside
    a P/D connector, some plans have the others on P alone."""
    pair = any(each.pair for each in subjects)
    return TestedConnector(
        "MultiConnector",
        extra,
        keeps_prompts or subjects[0].keeps_prompts,
        forgets=pair and any(each.forgets for each in subjects),
        pair=pair,
        at_once=any(each.at_once for each in subjects),
        unlike=("stores",) if pair else (),
        by_block=all(each.by_block or each.pair for each in subjects),
    )


EXAMPLE = TestedConnector("ExampleConnector", {"shared_storage_path": "{tmp}"})
BENCH = TestedConnector("DecodeBenchConnector")
LIMITS = (
    (("max_offload_tokens", 8),),
    (("max_load_tokens", 4),),
    (("max_load_tokens", 6),),
    (("max_load_tokens", 7),),
)
"""The demands that a request may make on OffloadingConnector."""

ANSWERS = (("offload_prompt_only", False),)
"""Options with which answers are stored too."""

USED_AGAIN = (("store_threshold", 2),)
"""Options with which only prompts that arrive a second time are stored."""

CANONICAL = (("canonical_layout", True),)
"""Files in a form that does not depend on the number of ranks."""


def _offloading(
    extra: Mapping[str, Any], in_pages: bool = True, by_block: bool = True, **more: Any
) -> TestedConnector:
    """vLLM's OffloadingConnector with these settings."""
    return TestedConnector(
        "OffloadingConnector", extra, in_pages=in_pages, by_block=by_block, **more
    )


def _tiered(chunks: int = 16, **tier: Any) -> dict[str, Any]:
    """The settings with this tier behind a CPU tier for so many chunks."""
    size = {"cpu_bytes_to_use": chunks * 2**12}
    return {**size, "spec_name": "TieringOffloadingSpec", "secondary_tiers": [tier]}


OFFLOADING = _offloading(
    OFFLOADED, ranks=True, asks=LIMITS, replicas=True, options=(ANSWERS, USED_AGAIN)
)
SMALL = _offloading({"cpu_bytes_to_use": 2**14}, asks=LIMITS, options=(ANSWERS, USED_AGAIN))
"""Room for four chunks: while they are copied, nothing else can be stored, and later it can."""

WIDE = _offloading(
    {**OFFLOADED, "blocks_per_chunk": 2, "eviction_policy": "arc"},
    by_block=False,
    asks=LIMITS,
    options=(ANSWERS, USED_AGAIN),
)
CHUNKS = _offloading(
    {**OFFLOADED, "block_size": 8, "eviction_policy": "arc"}, by_block=False, equal_blocks=True
)
"""Chunks of several blocks; vLLMs before July 2026 have no `blocks_per_chunk`."""

SELF_DESCRIBING = _offloading(
    {"cpu_bytes_to_use": 2**14, "blocks_per_chunk": 2, "self_describing_kv_events": True},
    by_block=False,
)
"""Options with which KV events carry tokens. There is room for four chunks of several blocks, so
that events tell of evictions, too."""
STATES = TestedConnector(
    "ExampleHiddenStatesConnector",
    {"shared_storage_path": "{tmp}"},
    asks=((("include_output_tokens", 1),),),
    hidden=True,
)
"""The connector that saves the hidden states of prompts."""

FAST: tuple[TransferParams, ...] = (((LOAD_TIERS, 0),),)
"""The demand that nothing is loaded from tiers below the first."""

ANOTHER: tuple[Another, ...] = ("", "model", "dtype")
FILES = _offloading(
    _tiered(8, type="fs", root_dir="{tmp}"),
    forgets=True,
    restarts=ANOTHER,
    replicas=True,
    asks=FAST,
    options=(ANSWERS, CANONICAL),
)
"""What the CPU tier gives up for other prompts is read from files again."""
ROOMY = _offloading(
    {"cpu_bytes_to_use": 2**20},
    in_pages=False,
    keeps_prompts=True,
    ranks=True,
    options=(ANSWERS,),
)
"""Room for more prompts than an episode has, so that none is forgotten."""
ON_DISK: Options = (
    ("kv_offload_backend", "disk"),
    ("disk_path", "{tmp}/kv"),
    ("disk_capacity_bytes", 2**12),
    ("use_page_cache", True),
)
"""Blocks go to a file; without the page cache they would have to be larger."""

SIMPLE = TestedConnector(
    "SimpleCPUOffloadConnector",
    {"cpu_bytes_to_use": 2**12},
    ranks=True,
    replicas=True,
    options=(ON_DISK,),
    by_block=True,
)
LAZY = replace(SIMPLE, extra={**SIMPLE.extra, "lazy_offload": True}, replicas=False)
SIMPLE_ROOMY = TestedConnector(
    SIMPLE.name, {"cpu_bytes_to_use": 2**16}, keeps_prompts=True, ranks=True, by_block=True
)
KEPT_FILES = replace(
    FILES,
    extra=_tiered(type="fs", root_dir="{tmp}"),
    keeps_prompts=True,
    replicas=False,
    asks=(),
    options=(),
)
STORE = ("bucket", "endpoint_override", "access_key", "secret_key")
"""The settings of an object store that vLLM requires; it requires the access keys only until June
2026."""

OBJECTS = _offloading(
    _tiered(type="obj", store_config=dict.fromkeys(STORE, "")), forgets=True, restarts=ANOTHER
)
"""A connector with an object store behind its CPU tier."""
PRESSURE = {
    "backpressure_cls": "EMABackpressureDetector",
    "high_water_s": 1,
    "low_water_s": 0.5,
    "alpha": 1,
    "warmup_completions": 1,
}
"""A store that takes a second of the kit's clock puts a tier under pressure."""

PRESSED = _offloading(
    _tiered(type="fs", root_dir="{tmp}", backpressure=PRESSURE), forgets=True, restarts=ANOTHER
)
"""A tier of files that is given less to store while it is slow."""
PEERS = _offloading(
    {**_tiered(type="p2p", unbound_store_timeout_s=LEASE_S), "tier_poll_interval_s": 0},
    forgets=True,
    restarts=("",),
)
"""With another engine behind the CPU tier. No thread polls this tier between steps, as one does by
default since 0.33.0: what it does would depend on the time."""
MOONCAKE = TestedConnector(
    "MooncakeStoreConnector",
    keeps_prompts=True,
    forgets=True,
    ranks=True,
    restarts=("", "model"),
    replicas=True,
    options=(
        (("save_decode_cache", True),),
        (("enable_cross_layers_blocks", "true"),),
        (("lookup_async", True),),
        (("cache_prefix", "users"),),
    ),
    by_block=True,
)
"""What differs beside the name of the model is for its user to keep apart (`cache_prefix`)."""
LMCACHE = TestedConnector(
    "LMCacheMPConnector", {"lmcache.mp.port": 1}, keeps_prompts=True, forgets=True
)
LMCACHE_WIDE = TestedConnector(LMCACHE.name, {"lmcache.mp.port": 2}, forgets=True)
"""A low port of the kit's server is the number of blocks of a chunk."""

NIXL_TIMES = {"kv_lease_duration": LEASE_S, "engine_ttl": LEASE_S // 2}
"""How long P keeps blocks for D, and how long one keeps what it knows of the other, in seconds."""

UNEQUAL = (1, 2), (2, 1), (2, 4), (1, 4)
"""Numbers of ranks of P and D. Of two heads, four ranks have one that another has too: D may have
so many, but vLLM refuses to read from so many with fewer."""

UNLIKE: tuple[Unlike, ...] = ("model", "dtype", "transfer")
NIXL = TestedConnector(
    "NixlConnector",
    NIXL_TIMES,
    pair=True,
    unequal=UNEQUAL,
    restarts=("",),
    unlike=UNLIKE,
    narrow=True,
    buffered=True,
)
PUSH = TestedConnector(
    "NixlPushConnector",
    NIXL_TIMES,
    pair=True,
    unequal=UNEQUAL[:2],
    restarts=("",),
    unlike=UNLIKE,
    buffered=True,
)
"""Here P writes: vLLM refuses a D with more ranks than heads, in an assertion of P's handshake.
Blocks of two widths end D (`findings/push_dies_across_block_sizes`)."""

WRITING = TestedConnector(
    "MooncakeConnector", pair=True, at_once=True, unequal=UNEQUAL[:2], restarts=("",), forgets=True
)
"""Here P writes too, with the transfer engine of Mooncake."""

IMAGES = TestedConnector("kvproof.live.store:Storeless", images=True)
"""No connector: with images, the encoder cache is driven."""


def _stored(role: str) -> TestedConnector:
    """Settings without a KV connector, and with files for the encoder's outputs."""
    files = {"shared_storage_path": "{tmp}"}
    settings = {"ec_connector": "ECExampleConnector", "ec_connector_extra_config": files}
    return TestedConnector(IMAGES.name, {"ec_transfer_config": {**settings, "ec_role": role}})


STORED_IMAGES = _stored("ec_both")
ENCODING = _stored("ec_producer")
"""It encodes images for other engines, and computes no token. In vLLM such an engine has no cache
groups; here it has those of the plan, without a prefix cache."""

OF_ENCODER = ("v1/core/encoder_cache_manager.py", "v1/core/sched")
OF_STORED = ("distributed/ec_transfer", "v1/worker/ec_connector_model_runner_mixin.py")
OF_OFFLOADING = (V1 + "offloading_connector.py", V1 + "offloading", "v1/kv_offload")
OF_TIERS = (*OF_OFFLOADING, "v1/kv_offload/tiering")
OF_SIMPLE = (V1 + "simple_cpu_offload_connector.py", "v1/simple_kv_offload")
OF_LMCACHE = (V1 + "lmcache_mp_connector.py",)
OF_EXAMPLE = (V1 + "example_connector.py",)
OF_MULTI = (V1 + "multi_connector.py",)

SHIPPED: dict[str, Shipped] = {
    "images": Shipped(IMAGES, OF_ENCODER),
    "images-stored": Shipped(STORED_IMAGES, OF_STORED),
    "images-encoded": Shipped(ENCODING, (*OF_STORED, "v1/core/sched")),
    "example": Shipped(EXAMPLE, OF_EXAMPLE),
    "hidden-states": Shipped(STATES, (V1 + "example_hidden_states_connector.py",)),
    "decode-bench": Shipped(BENCH, (V1 + "decode_bench_connector.py",), dummy=True),
    "offloading": Shipped(OFFLOADING, OF_OFFLOADING),
    "offloading-small": Shipped(SMALL, OF_OFFLOADING),
    "offloading-wide": Shipped(WIDE, OF_OFFLOADING),
    "offloading-chunks": Shipped(CHUNKS, OF_OFFLOADING),
    "offloading-events": Shipped(SELF_DESCRIBING, OF_OFFLOADING),
    "offloading-roomy": Shipped(ROOMY, OF_OFFLOADING),
    "offloading-files": Shipped(FILES, OF_TIERS),
    "offloading-kept": Shipped(KEPT_FILES, OF_TIERS),
    "offloading-objects": Shipped(OBJECTS, ("v1/kv_offload/tiering",)),
    "offloading-pressed": Shipped(PRESSED, ("v1/kv_offload/tiering/backpressure.py",)),
    "offloading-peers": Shipped(PEERS, ("v1/kv_offload/tiering", "v1/kv_offload/tiering/p2p")),
    "simple-cpu": Shipped(SIMPLE, OF_SIMPLE),
    "simple-cpu-roomy": Shipped(SIMPLE_ROOMY, OF_SIMPLE),
    "simple-cpu-lazy": Shipped(LAZY, OF_SIMPLE),
    "mooncake-store": Shipped(MOONCAKE, (V1 + "mooncake/store", "distributed/mooncake_store.py")),
    "lmcache": Shipped(LMCACHE, OF_LMCACHE),
    "lmcache-wide": Shipped(LMCACHE_WIDE, OF_LMCACHE),
    "nixl-pull": Shipped(NIXL, (V1 + "nixl",)),
    "nixl-push": Shipped(PUSH, (V1 + "nixl",)),
    "mooncake": Shipped(
        WRITING, (V1 + "mooncake/mooncake_connector.py", V1 + "mooncake/mooncake_utils.py")
    ),
    "multi-offloading-simple": Shipped(_several(OFFLOADING, SIMPLE), OF_MULTI),
    "multi-simple-mooncake": Shipped(_several(SIMPLE, MOONCAKE), OF_MULTI),
    "multi-mooncake-offloading": Shipped(_several(MOONCAKE, OFFLOADING), OF_MULTI),
    "multi-nixl-offloading": Shipped(_several(NIXL, OFFLOADING), OF_MULTI),
    "multi-nixl-store": Shipped(_several(NIXL, MOONCAKE), OF_MULTI),
    "multi-example-offloading": Shipped(_several(EXAMPLE, OFFLOADING), OF_MULTI),
    "multi-lmcache-offloading": Shipped(_several(LMCACHE, OFFLOADING), OF_MULTI),
}
"""The connectors of vLLM by a short name."""


def as_driven(name: str, extra: Mapping[str, Any], keeps_prompts: bool) -> TestedConnector:
    """The connector of this name with these settings. A connector of the table is driven as the
    table says. Each of a pair of engines, and a connector that saves hidden states, gets the
    settings of the table where no others are given. A short name of the table stands for one of its
    connectors."""
    if name in SHIPPED and not extra:
        known = SHIPPED[name].subject
        return replace(known, keeps_prompts=known.keeps_prompts or keeps_prompts)
    own = TestedConnector(name, extra, keeps_prompts)
    if "connectors" in extra:
        return _as_children(own)
    alike = _alike(name)
    for subject in alike:
        if subject.extra == extra:
            return replace(subject, keeps_prompts=subject.keeps_prompts or keeps_prompts)
    special = (each for each in alike if each.pair or each.hidden)
    driven = (replace(each, extra={**each.extra, **extra}) for each in special)
    return next(driven, own)


def _alike(name: str) -> list[TestedConnector]:
    """The connectors of the table of this class."""
    return [each.subject for each in SHIPPED.values() if each.subject.name == name]


def _as_children(own: TestedConnector) -> TestedConnector:
    """The connector with others inside as these have to be driven: with a P/D connector among
    them, in P and D. Such a one gets the settings of the table where no others are given."""
    inside, driven = [], []
    for child in own.extra["connectors"]:
        name = child.get("kv_connector", "")
        extra = child.get("kv_connector_extra_config", {})
        driven.append(as_driven(name, extra, keeps_prompts=False))
        known = {"kv_connector_extra_config": driven[-1].extra}
        inside.append({"kv_buffer_device": "cpu", **child, **known})
    if not any(each.pair for each in driven):
        return own
    return _with_children({**own.extra, "connectors": inside}, driven, own.keeps_prompts)
