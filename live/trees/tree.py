"""A tree of vLLM: what its Python files say, in a short hash, and how a process is made to import
it."""

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

from kvproof.live.availability import place
from kvproof.live.trees.mirror import files
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes, shown


class Tree(NamedTuple):
    """A vLLM that a process can import.

    `name` is what people read. `package` is the folder of the package `vllm`, with its real files.
    A process that imports the tree has `folders` first on its path, in this order; there are none
    for a vLLM that is importable as it is. `version` is "unknown" where no metadata has it.
    """

    name: str
    package: Path
    folders: tuple[Path, ...]
    version: str


def fingerprint(tree: Tree) -> str:
    """A hash of all Python files of the package, path and content: 16 hexadecimal digits. It does
    not depend on where the tree lies. Raises UsageError where a file cannot be read."""
    digest = hashlib.sha256()
    for name, path in files(tree.package):
        if name.endswith(".py"):
            content = read_bytes(path, "file of vLLM")
            digest.update(f"{len(name)} {name} {len(content)} ".encode(errors="surrogateescape"))
            digest.update(content)
    return digest.hexdigest()[:16]


SAFE = {"PYTHONSAFEPATH": "1"}
"""The environment variable that keeps Python from putting the working folder first on the path of
`python -m`. In a clone of vLLM, the working folder would be another vLLM."""

INSPECTED = ("model_executor/models/llama.py", "model_executor/models/registry.py")
"""The files that determine what vLLM stores about a model: the model, and the code that inspects
it."""


def environment(tree: Tree, further: tuple[Path, ...] = ()) -> dict[str, str]:
    """The environment of a child process that imports the tree: that of this process, with the
    folders of the tree first on the path, and then the further ones.

    vLLM inspects the model that kvproof configures, which takes seconds, and keeps what it found.
    Trees in which the file of that model is the same share the stored result, so base and head, and
    an edited tree, inspect it once. Trees with another file would overwrite the result and have one
    of their own.
    """
    folders = [*map(str, tree.folders), *map(str, further)]
    inherited = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    if not tree.folders:
        beside = [str(tree.package.parent)] if tree.package.parent == Path.cwd() else []
        return os.environ | SAFE | {"PYTHONPATH": os.pathsep.join([*beside, *inherited])}
    return (
        os.environ
        | SAFE
        | {
            "PYTHONPATH": os.pathsep.join([*folders, *inherited]),
            "VLLM_CACHE_ROOT": str(_kept(tree)),
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CONFIGURE_LOGGING": "0",
        }
    )


def _kept(tree: Tree) -> Path:
    """The folder in which vLLM stores the inspection of its models, beside the mirrors."""
    digest = hashlib.sha256()
    for name in INSPECTED:
        path = tree.package / name
        digest.update(read_bytes(path, "file of vLLM") if path.is_file() else b"")
    return tree.folders[0].parents[2] / "inspected" / digest.hexdigest()[:16]


def lend(tree: Tree, further: tuple[Path, ...] = ()) -> None:
    """Make this process, and the processes that it starts, import the tree, and what it imports
    beside from the `further` folders. Raises UsageError where this process has already imported
    vLLM, or would still import another one."""
    if not tree.folders:
        return
    if "vllm" in sys.modules:
        raise UsageError(
            f"This process has already imported vLLM, so it cannot import {tree.name}. "
            "Use a separate command for each vLLM."
        )
    os.environ.update(environment(tree, further))
    sys.path[:0] = map(str, (*tree.folders, *further))
    importlib.invalidate_caches()
    if (first := place()) != tree.package:
        raise UsageError(
            f"An import of vLLM gives {shown(first)} and not {shown(tree.package)}, because an "
            "import hook of this environment comes first. Use an environment without that hook."
        )
