"""`python -m tests.on_release RELEASE MISTAKE CLUSTER...`: random episodes on a vLLM release from
the cache folder, with a mistake put in or, where MISTAKE is none, as released. Prints what was
found, one JSON object a cluster.

It is a process of its own, because a process imports one vLLM only.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from kvproof.invariants.registry import CHECKS
from kvproof.live.trees import lend, named
from kvproof.model.presets import cluster_named
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.sampling.stateful import sample
from tests.planted import asked_under
from tests.watching import known_faults, watched

EXAMPLES = 15


def next_token_not_hashed() -> None:
    """Of what a hash covers beside its tokens, the tokens after the block are left out."""
    from vllm.v1.core import kv_cache_utils

    original = kv_cache_utils.hash_block_tokens

    def blind(function: Any, parent: Any, tokens: Any, extra_keys: Any = None) -> Any:
        return original(function, parent, tokens, extra_keys[0] if extra_keys else None)

    kv_cache_utils.hash_block_tokens = blind


def last_match_dropped_too() -> None:
    """The last block of a match is left out, as if its hash covered its own tokens only."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original: Callable[..., None] = KVCacheManager.__init__

    def dropping(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs | {"use_eagle": True})

    KVCacheManager.__init__ = dropping


MISTAKES = {m.__name__: m for m in (next_token_not_hashed, last_match_dropped_too)}
AS_RELEASED = "none"


def main(release: str, mistake: str, *clusters: str) -> None:
    """Print the verdict on each cluster, and the invariant that was broken."""
    lend(named(release, None))
    if mistake != AS_RELEASED:
        MISTAKES[mistake]()
    for name in clusters:
        cluster = cluster_named(name)
        asked = (*CHECKS.values(), *asked_under(known_faults(cluster), conformance_checks()))
        outcome = sample(cluster, watched, asked, examples=EXAMPLES, shrink=False)
        finding = outcome.finding and outcome.finding.invariant
        print(json.dumps({"cluster": name, "verdict": outcome.verdict.name, "finding": finding}))


if __name__ == "__main__":
    main(*sys.argv[1:])
