"""This module tells from files alone whether there is a connector of a name.

An import of vLLM takes half a minute, and a mistyped name is told before it. Nothing is imported
here: a module is found as an import would find it, and its source is read. What cannot be told from
the source, as where a module has `from x import *`, is left to the import.
"""

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path

from kvproof.live.availability import importable
from kvproof.model.errors import UsageError, nearest
from kvproof.model.files.reading import read_text, shown

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
    registered = set(_registered(package / FACTORY))
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
    """Raise UsageError where a source file cannot be read, or has no such class."""
    text = read_text(file, "module")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise _none(name, f"line {error.lineno} of {shown(file)}: {error.msg}") from error
    names = set(_bound(tree.body))
    if kind not in names and not names & {"*", "__getattr__"}:
        near = nearest(kind, names)
        instead = f", but {near}" if near else ""
        raise _none(name, f"{shown(file)} has no {kind}{instead}")


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Return the names that statements bind, also those below a condition."""
    for each in body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in each.names)
        else:
            yield from (n.id for n in ast.walk(each) if isinstance(n, ast.Name))
            for part in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(each, part, ()))
            for handler in getattr(each, "handlers", ()):
                yield from _bound(handler.body)


def _registered(factory: Path) -> Iterator[str]:
    """Return the names that vLLM registers; none where its table is in another place."""
    if not factory.is_file():
        return
    for node in ast.walk(ast.parse(read_text(factory, "table of connectors"))):
        called = node.func if isinstance(node, ast.Call) else None
        if getattr(called, "attr", "") == "register_connector" and isinstance(node, ast.Call):
            given = [*node.args, *(each.value for each in node.keywords if each.arg == "name")]
            if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
                yield given[0].value


def _has_plugins() -> bool:
    """Whether vLLM has a plugin of somebody else: it may register connectors."""
    found = entry_points(group="vllm.general_plugins")
    return any(not each.value.startswith(WITHOUT_CONNECTORS) for each in found)
