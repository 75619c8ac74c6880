"""The two vLLMs that a command line names."""

import argparse

from kvproof.live.trees import Tree, commit, named
from kvproof.live.trees.commits import require_clone
from kvproof.model.errors import UsageError


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
    base = named(args.base, args.cache)
    if args.base is None and base.package == head.package:
        raise UsageError(
            "There is no vLLM to compare with: head is the installed one. Use --repo with a clone "
            "of vLLM, or --base with another vLLM."
        )
    return base, head
