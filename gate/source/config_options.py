"""Options of vLLM's configs that changed code names, and that kvproof does not model.

They are found by reading: a field of `SchedulerConfig` or `CacheConfig` whose name stands in a
changed statement, or in a condition around it, or of which an attribute is made that stands there.
Values come of its type: both of a boolean, each text that the type lists, and a few numbers. Fields
without such a type name a class, a path or a list: they are left out. Of the settings of connectors
(`kv_connector_extra_config`), those whose default is a boolean or a number.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvproof.gate.source.files import Package
from kvproof.gate.source.units import Module
from kvproof.model.files.reading import read_bytes
from kvproof.model.plans.config_options import Config, ConfigOption

CLASSES: dict[Config, tuple[str, str]] = {
    "scheduler": ("config/scheduler.py", "SchedulerConfig"),
    "cache": ("config/cache.py", "CacheConfig"),
}
"""The class of each config, with its file."""

NUMBERS = 1, 4, 16
"""The values of an option that is a number."""

CONNECTORS = "distributed/kv_transfer/", "v1/kv_offload/", "v1/simple_kv_offload/"
"""The folders of the code of connectors."""

SETTING = re.compile(
    r"""(?:extra_config(?:\(\))?\.get|get_from_extra_config)"""
    r"""\(\s*"(?!\w*(?:port|threads|workers|jobs)")(\w+)",\s*(?:("?(?:True|False|true|false)\b)|\d[\d_]*\s*[,)])"""
)
"""Reads a setting of a connector whose default is a boolean, also in text, or a number that is no
port and counts no threads."""

OPTIONS_MAX = 8
"""The most options that are tried."""

MODELLED = frozenset(
    {
        *("max_num_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens", "runner_type"),
        *("async_scheduling", "policy", "disable_hybrid_kv_cache_manager", "is_multimodal_model"),
        *("long_prefill_token_threshold", "scheduler_reserve_full_isl", "disable_chunked_mm_input"),
        *("block_size", "prefix_match_unit", "num_gpu_blocks_override", "enable_prefix_caching"),
        *("prefix_cache_retention_interval", "mamba_block_size", "mamba_cache_mode"),
        "enable_mamba_shared_prefix_checkpoint",
    }
)
"""The options that clusters and plans have under names of their own, or that every engine of
kvproof sets."""


def named(
    words: Iterable[str], packages: Sequence[Package], files: Iterable[str] = ()
) -> tuple[ConfigOption, ...]:
    """The options that all of these vLLMs have, and that one of these words names, also by what is
    made of them in one of these changed `files`, with each value: `OPTIONS_MAX` at most. Base
    cannot say what is right with an option that it has not."""
    words = frozenset(words)
    found = [each.module(file) for file in files for each in packages if file in each.files]
    made = (_made_of(words, module) for module in found if module is not None)
    made_of = frozenset[str]().union(*made)
    first, *others = ([*_options(each), *_settings(each)] for each in packages)
    shared = set(first).intersection(*others)
    options = [each for each in first if each in shared and each.name not in MODELLED]
    # What a changed line names itself comes before what is made of it.
    wanted = [e for names in (words, made_of) for e in options if e.name in names]
    return tuple(dict.fromkeys(wanted))[:OPTIONS_MAX]


def _settings(package: Package) -> Iterator[ConfigOption]:
    for file, path in sorted(package.files.items()):
        if file.startswith(CONNECTORS):
            text = read_bytes(path, "source file").decode("utf-8", "replace")
            for name, boolean in SETTING.findall(text):
                values = (False, True) if boolean else NUMBERS
                yield from (ConfigOption("connector", name, value) for value in values)


def _made_of(words: frozenset[str], module: Module) -> set[str]:
    """The names of fields, and the texts, of which a module makes an attribute with one of these
    names: of `self.late = config.extra.get("delay", 1)` these are `extra`, `get` and `delay`."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Attribute) and each.attr in words for each in targets):
                for each in ast.walk(node.value):
                    if isinstance(each, ast.Attribute):
                        found.add(each.attr)
                    elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                        found.add(each.value)
    return found


def _options(package: Package) -> Iterator[ConfigOption]:
    for of, (file, kind) in CLASSES.items():
        module = package.module(file) if file in package.files else None
        body = module.tree.body if module is not None else []
        aliases = {
            target.id: node.value
            for node in body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in (each for each in body if isinstance(each, ast.ClassDef) and each.name == kind):
            for field in node.body:
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and not _is_computed(field.value)
                ):
                    for value in _values(field.annotation, aliases):
                        yield ConfigOption(of, field.target.id, value)


def _is_computed(default: ast.expr | None) -> bool:
    """Whether nobody sets a field: vLLM computes it (`init=False`)."""
    return isinstance(default, ast.Call) and any(
        each.arg == "init" and isinstance(each.value, ast.Constant) and each.value.value is False
        for each in default.keywords
    )


def _values(kind: ast.expr, aliases: Mapping[str, ast.expr]) -> Iterator[bool | int | str]:
    """The values of a field with this type; none where it is no plain option."""
    match kind:
        case ast.Name("bool"):
            yield from (False, True)
        case ast.Name("int"):
            yield from NUMBERS
        case ast.Name(name) if name in aliases:
            yield from _values(aliases[name], {})
        case ast.BinOp(left, ast.BitOr(), right):
            yield from _values(left, aliases)
            yield from _values(right, aliases)
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(texts)):
            yield from (
                each.value
                for each in texts
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
