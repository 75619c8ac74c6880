"""This module tells from files alone whether there is a connector of a name.

An import of vLLM takes half a minute, and a mistyped name is told before it. Nothing is imported
here: a module is found as an import would find it, and its text is searched. What cannot be told
from the text is left to the import.
"""

import os
import re
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path

from kvproof.live.availability import importable
from kvproof.model.errors import UsageError, nearest
from kvproof.model.files.reading import read_text, shown

REGISTERED = re.compile(r"register_connector\(\s*(?:name=)?[\"'](\w+)[\"']")
"""How vLLM registers a connector: by a name that is written there."""

FACTORY = Path("distributed", "kv_transfer", "kv_connector", "factory.py")
"""Where vLLM registers its connectors, in its package."""

WITHOUT_CONNECTORS = ("vllm.", "kvproof.")
"""The packages whose plugins of vLLM register no connector."""


def check_name(name: str, shipped: Iterable[str]) -> None:
    """Raise UsageError where there is no vLLM, or no connector of this name: neither in its table,
    nor `shipped` with settings of kvproof, nor at `module:Class` or `FILE.py:Class`."""
    package = importable()
    place, colon, kind = name.rpartition(":")
    if colon and not kind.isidentifier():
        raise _none(name, "what stands after the colon is no name of a class")
    if colon:
        file = Path(place) if place.endswith(".py") else _file(name, place)
        if file is not None:
            _check_class(name, file, kind)
        return
    factory = package / FACTORY  # in another vLLM, the table may be in another place
    text = read_text(factory, "table of connectors") if factory.is_file() else ""
    registered = set(REGISTERED.findall(text))
    if not registered or _has_plugins() or name in registered or name in (known := set(shipped)):
        return
    near = nearest(name, registered | known)
    hint = f"{near} or another name" if near else "a name"
    raise UsageError(
        f"There is no connector {name[:80]!r}. Use {hint} of reports/connectors.md, one that vLLM "
        "registers, module:Class, or FILE.py:Class."
    )


def _none(name: str, why: str) -> UsageError:
    return UsageError(
        f"There is no connector {name[:200]!r} ({why}). Use a name that vLLM has registered, "
        "module:Class, or FILE.py:Class."
    )


def _file(name: str, module: str) -> Path | None:
    """Return the source file of a module, None where it has none. Raises UsageError where there is
    no such module."""
    path, spec = None, None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        spec = _spec(".".join(parts[:number]), path)
        if spec is None:
            raise _none(name, f"there is no module {'.'.join(parts[:number])}")
        path = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    """Find what an import of a module would load. Its packages are not imported."""
    if path is None:
        path = [*sys.path, os.getcwd()]
    for finder in sys.meta_path:
        found = finder.find_spec(name, path)
        if found is not None:
            return found
    return None


def _check_class(name: str, file: Path, kind: str) -> None:
    """Raise UsageError where a source file cannot be read, or its text does not have the name of
    the class. The import tells whether it is one."""
    text = read_text(file, "module")
    if not re.search(rf"\b{kind}\b|import \*|__getattr__", text):
        raise _none(name, f"{shown(file)} has no {kind}")


def _has_plugins() -> bool:
    """Whether vLLM has a plugin of somebody else: it may register connectors."""
    found = entry_points(group="vllm.general_plugins")
    return any(not each.value.startswith(WITHOUT_CONNECTORS) for each in found)
