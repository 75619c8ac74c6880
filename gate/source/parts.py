"""The rule: which code of vLLM is KV-cache accounting, and of which part.

Code belongs to a part by its file, or by what it uses: a function that names a word of USES, and
all of a file that derives a class from a base of BASES, wherever it lies. So a new connector falls
under the rule by itself. Whether a part is driven does not stand here: a run has to reach the code.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from kvproof.gate.source import names
from kvproof.gate.source.files import Package
from kvproof.gate.source.units import MODULE, Module
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes

SIZE_MAX_MIB = 64
"""The size of a file of vLLM."""


class AccountingPart(NamedTuple):
    """A part of the accounting: its files, as patterns of paths in the package, and the names that
    it has of these files (all where there are none): patterns of the last part of a name, or whole
    names."""

    name: str
    files: tuple[str, ...]
    names: tuple[str, ...] = ("*",)


NIXL = "the NIXL connector"
CONNECTORS = "KV connectors"
EC_CONNECTORS = "connectors of the encoder cache"
ENCODER = "the encoder cache"
OFFLOADING = "KV offloading"
SIZING = "start-up sizing"
CORE = "the scheduler and the block pool"
TABLES = "the block tables of the worker"
LOOP = "the loop of the engine"
FRONT = "the front of the engine"
READER = "the reader of the engine's outputs"

CONNECTED = frozenset({CONNECTORS, EC_CONNECTORS, OFFLOADING, ENCODER})
"""The parts that plans of the connector kit reach, and clusters do not."""

STARTED = frozenset({SIZING, LOOP, FRONT, READER})
"""The parts that a start-up or a loop reaches, and the events of a cluster do not."""

ONLY_IN = {ENCODER: "images", EC_CONNECTORS: "images-stored"}
"""Parts that any run calls, and that have nothing to do without images. So a call counts only in
plans of this subject of the connector kit."""

PARTS = (
    AccountingPart(NIXL, ("distributed/kv_transfer/kv_connector/v1/nixl*",)),
    AccountingPart(CONNECTORS, ("distributed/kv_transfer/*", "distributed/mooncake_store.py")),
    AccountingPart(EC_CONNECTORS, ("distributed/ec_transfer/*", "v1/worker/*ec_connector*")),
    AccountingPart(ENCODER, ("v1/core/*encoder_cache*", "v1/worker/*encoder_cache*")),
    AccountingPart(OFFLOADING, ("v1/*offload*", "v1/hisparse/*")),
    AccountingPart(SIZING, ("v1/kv_cache_*.py", "v1/worker/startup_plan.py")),
    AccountingPart(
        SIZING,
        ("v1/core/kv_cache_utils.py",),
        (
            *("*kv_cache_config*", "*kv_cache_group*", "*kv_cache_spec*", "*max_model_len*"),
            *("*memory*", "*num_blocks*", "*page_size*", "*capacity*", "*concurrency*"),
            *("*block_size*", "*divisor*"),
        ),
    ),
    AccountingPart(CORE, ("v1/core/*",)),
    AccountingPart(CONNECTORS, ("v1/worker/*kv_connector*",)),
    AccountingPart(TABLES, ("v1/worker/*block_table*",)),
    AccountingPart(LOOP, ("v1/engine/core.py",)),
    AccountingPart(FRONT, ("v1/engine/core_*.py", "v1/engine/coordinator.py")),
    AccountingPart(
        READER,
        ("v1/engine/llm_engine.py", "v1/engine/async_llm.py"),
        ("step", "_run_output_handler"),
    ),
    AccountingPart(READER, ("v1/metrics/loggers.py",), ("PrometheusStatLogger.record",)),
)
"""The first part that has a function counts."""

BASES = {
    CONNECTORS: ("KVConnectorBase", "KVConnectorBase_V1", "KVConnectorMetadata", "SupportsHMA"),
    EC_CONNECTORS: ("ECConnectorBase", "ECConnectorMetadata"),
    OFFLOADING: ("OffloadingManager", "OffloadingSpec", "OffloadingHandler", "OffloadingWorker"),
    CORE: ("SchedulerInterface", "Scheduler", "KVCacheCoordinator", "SingleTypeKVCacheManager"),
    ENCODER: ("EncoderCacheManager",),
    SIZING: ("KVCacheSpec", "AttentionSpec"),
}
"""Classes of the accounting that other files derive from."""

USES = BASES | {
    CONNECTORS: (
        *(*BASES[CONNECTORS], "KVConnectorFactory", "KVConnectorOutput", "KVOutputAggregator"),
        *("get_kv_transfer_group", "has_kv_transfer_group", "kv_connector_metadata"),
    ),
    EC_CONNECTORS: (*BASES[EC_CONNECTORS], "get_ec_transfer", "ECConnectorOutput"),
    CORE: (
        *("KVCacheBlock", "KVCacheBlocks", "BlockPool", "KVCacheManager", "KVCacheCoordinator"),
        *("SingleTypeKVCacheManager", "block_ids", "new_block_ids", "block_hashes"),
    ),
    TABLES: (
        *("BlockTable", "BlockTables", "MultiGroupBlockTable", "block_table", "block_tables"),
        *("slot_mapping", "slot_mappings"),
    ),
    SIZING: ("KVCacheConfig", "get_kv_cache_configs", "determine_available_memory"),
    ENCODER: ("EncoderCacheManager", "encoder_cache"),
}
"""What only code of the accounting names. `Scheduler` alone is a name of many things."""

READERS = (
    *("v1/attention/*", "model_executor/*", "models/*", "kernels/*", "third_party/*"),
    *("vllm_flash_attn/*", "triton_utils/*", "platforms/*", "compilation/*", "benchmarks/*"),
    *("_*.py", "utils/*"),
)
"""Models, kernels and tools: they are given block tables and read the blocks there, and keep none.
A class of the accounting is one here too."""

OF_DEVICE = ("v1/worker/*", "v1/attention/*", "v1/spec_decode/*", "v1/sample/*", "model_executor/*")
"""What runs with a model on its device alone, which no run of kvproof has."""

PEOPLE = ("__repr__", "__str__")
"""Functions that make text for people."""


def _any_of(words: Mapping[str, Iterable[str]]) -> re.Pattern[bytes]:
    return re.compile(rb"\b(?:%s)\b" % "|".join(w for ws in words.values() for w in ws).encode())


OF_BASES, OF_USES = _any_of(BASES), _any_of(USES)


class Belongs(NamedTuple):
    """The part of the accounting to which a function belongs, and why."""

    part: str
    why: str


def belongs(file: str, name: str, modules: Iterable[Module | None]) -> Belongs | None:
    """The part to which a function belongs; None where it is outside. `modules` are its file on
    both sides, as far as there is one."""
    if for_people(name):
        return None
    for part in PARTS:
        for pattern in part.files:
            within = name in part.names or any(fnmatch(_last(name), each) for each in part.names)
            if within and fnmatch(file, pattern):
                return Belongs(part.name, f"lies in {pattern}")
    known = [module for module in modules if module is not None]
    for module in known:
        for part_name, bases in BASES.items():
            if base := next((each for each in bases if each in derived(module)), None):
                return Belongs(part_name, f"its file derives a class from {base}")
    if any(fnmatch(file, pattern) for pattern in READERS):
        return None
    for module in known:
        named = mentioned(module, name)
        for part_name, words in USES.items():
            if word := next((each for each in words if each in named), None):
                return Belongs(part_name, f"uses {word}")
    return None


def for_people(name: str) -> bool:
    """Whether a function makes text for people."""
    return name.rpartition(".")[2] in PEOPLE


def may_belong(file: str, path: Path) -> bool:
    """Whether some function of a file may belong to a part. Where not, it need not be parsed."""
    if any(fnmatch(file, pattern) for part in PARTS for pattern in part.files):
        return True
    words = OF_BASES if any(fnmatch(file, pattern) for pattern in READERS) else OF_USES
    try:
        return words.search(read_bytes(path, "source file", SIZE_MAX_MIB)) is not None
    except UsageError:
        return True


def _last(name: str) -> str:
    return name.removeprefix("<class ").removesuffix(">").rpartition(".")[2].lower()


def derived(module: Module) -> set[str]:
    """The names of all bases of the classes of a file, with what these are imported as."""
    found = set()
    for node in ast.walk(module.tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            chain = names.chain(base) if isinstance(base, ast.Name | ast.Attribute) else None
            if chain:
                target = module.imports.targets.get(chain[0])
                found |= {chain[-1]} | ({target.attribute} if target else set())
    return found


def unused(package: Package, functions: Mapping[str, str]) -> frozenset[str]:
    """The functions among these that no other code of a package names, also not in a text, as
    `getattr` does. `functions` maps a key to the name of each function. A function that only other
    unused functions name does not run either."""
    words = {word.rpartition(".")[2] for word in functions.values()}
    plain = {word for word in words if word.isidentifier() and not word.startswith("__")}
    left = {key for key, word in functions.items() if word.rpartition(".")[2] in plain}
    if not left:
        return frozenset()
    users: dict[str, set[str]] = {word: set() for word in plain}
    wanted = _any_of({"": plain})
    for file, path in package.files.items():
        if wanted.search(read_bytes(path, "source file", SIZE_MAX_MIB)) is None:
            continue
        module = package.module(file)
        for unit in module.units if module else (MODULE,):
            if for_people(unit):
                continue
            named = mentioned(module, unit, texts=True) if module else plain
            for word in named & plain:
                users[word].add(f"{file}:{unit}")
    while used := {key for key in left if users[functions[key].rpartition(".")[2]] - left}:
        left -= used
    return frozenset(left)


def mentioned(module: Module, name: str, *, texts: bool = False) -> set[str]:
    """All identifiers of a function; with `texts` also its texts."""
    unit = module.units.get(name)
    found: set[str] = set()
    inner = {line for first, last in module.inner(name) for line in range(first, last + 1)}
    for node in (each for top in (unit.nodes if unit else ()) for each in ast.walk(top)):
        if inner and getattr(node, "lineno", 0) in inner:
            continue
        if isinstance(node, ast.Name):
            target = module.imports.targets.get(node.id)
            found |= {node.id, target.attribute if target else node.id}
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.alias):
            found.add(node.name.rpartition(".")[2])
    return found


def of_device(file: str) -> bool:
    """Whether the code of a file runs with a model on its device alone."""
    return any(fnmatch(file, pattern) for pattern in OF_DEVICE)
