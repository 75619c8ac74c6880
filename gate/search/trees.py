"""The two vLLMs that a command line names."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from kvproof.live.releases import cache_folder
from kvproof.live.trees import Tree, commit, named
from kvproof.live.trees.commits import require_clone
from kvproof.live.trees.mirror import files
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes

ACCOUNTING = ("v1/core/", "v1/request.py", "distributed/kv_transfer/kv_connector/v1/")
"""Where two vLLMs are compared to find out how much they are alike."""


def chosen(args: argparse.Namespace) -> tuple[Tree, Tree]:
    """Base and head. Raises UsageError."""
    if args.repo is not None:
        if args.vllm is not None:
            raise UsageError("--repo and --vllm both say which vLLM is head. Use one of them.")
        require_clone(args.repo)
        if args.base is None:
            raise UsageError("--repo needs a commit to compare with. Use --base with a commit.")
        head = commit(args.repo, args.head or "HEAD", args.cache)
        return commit(args.repo, args.base, args.cache), head
    if args.head is not None:
        raise UsageError("--head names a commit, and there is no --repo. Use --vllm for a folder.")
    head = named(args.vllm, args.cache)
    if args.base is not None:
        return named(args.base, args.cache), head
    return _nearest(head, args.cache), head


def _nearest(head: Tree, cache: Path | None) -> Tree:
    """The vLLM that has the most files of the accounting in common with head. Raises UsageError
    where there is none."""
    others = [tree for tree in _known(cache) if tree.package != head.package]
    if not others:
        raise UsageError(
            "There is no vLLM to compare with: no release is in the cache folder. Use --repo with "
            "a clone of vLLM, or --base with another vLLM."
        )
    ours = _contents(head)
    return max(others, key=lambda tree: len(ours & _contents(tree)))


def _known(cache: Path | None) -> Iterator[Tree]:
    """The installed vLLM and the releases of the cache folder."""
    with contextlib.suppress(UsageError):
        yield named(None, cache)
    for folder in sorted((cache_folder(cache) / "vllm").glob("*.*.*")):
        with contextlib.suppress(UsageError):
            yield named(folder.name, cache)


def _contents(tree: Tree) -> set[tuple[str, bytes]]:
    return {
        (name, read_bytes(path, "file of vLLM"))
        for name, path in files(tree.package)
        if name.startswith(ACCOUNTING) and name.endswith(".py")
    }
