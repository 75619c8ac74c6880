"""A short name for what the Python files of a tree say."""

import hashlib

from kvproof.live.trees.files import files
from kvproof.live.trees.tree import Tree
from kvproof.model.files.reading import read_bytes


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
