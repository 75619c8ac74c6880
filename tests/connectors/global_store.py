"""A store in the memory of the process: what one engine stored, the next one loads, as from a server
that outlives its engines."""

from typing import Any

import torch

from tests.connectors.store import Copy, Key, Store

STORE: dict[Key, dict[str, torch.Tensor]] = {}


class GlobalStore(Store):
    """A right store. A key has the layout of the engine too."""

    kept = STORE

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        before = dict(STORE)
        super().__init__(vllm_config, role, kv_cache_config)
        STORE.update(before)
        self.layout = repr(kv_cache_config.kv_cache_groups[0].kv_cache_spec)

    def copies(self, request: Any, blocks: list[int], first: int, last: int) -> list[Copy]:
        made = super().copies(request, blocks, first, last)
        return [((self.layout, *key), block) for key, block in made]


class SaltlessStore(GlobalStore):
    """One that forgets the salts of requests."""

    def beside(self, request: Any) -> tuple[Any, ...]:
        return (None, *super().beside(request)[1:])
