"""Makes a process import a tree."""

import importlib
import os
import sys
from pathlib import Path

from kvproof.live.availability import place
from kvproof.live.trees.tree import Tree
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown


def environment(tree: Tree, further: tuple[Path, ...] = ()) -> dict[str, str]:
    """The environment of a child process that imports the tree: that of this process, with the
    folders of the tree first on the path, and then the further ones.

    Each tree has its own cache of vLLM, beside its mirror; otherwise trees would overwrite what
    vLLM keeps of each other's models.
    """
    if not tree.folders:
        return dict(os.environ)
    folders = [*map(str, tree.folders), *map(str, further)]
    inherited = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*folders, *inherited]),
        "VLLM_CACHE_ROOT": str(tree.folders[0].parent / "kept"),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CONFIGURE_LOGGING": "0",
    }


def lend(tree: Tree) -> None:
    """Make this process, and the processes that it starts, import the tree. Raises UsageError where
    this process has already imported vLLM, or would still import another one."""
    if not tree.folders:
        return
    if "vllm" in sys.modules:
        raise UsageError(
            f"This process has already imported vLLM, so it cannot import {tree.name}. "
            "Use a separate command for each vLLM."
        )
    os.environ.update(environment(tree))
    sys.path[:0] = map(str, tree.folders)
    importlib.invalidate_caches()
    if (first := place()) != tree.package:
        raise UsageError(
            f"An import of vLLM gives {shown(first)} and not {shown(tree.package)}, because an "
            "import hook of this environment comes first. Use an environment without that hook."
        )
