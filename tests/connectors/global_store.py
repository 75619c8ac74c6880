"""A store in the memory of the process: what one engine stored, the next one loads, as from a
server that outlives its engines."""

from typing import Any, ClassVar

import torch

from tests.connectors.store import Key, Store


class GlobalStore(Store):
    """A right store, for engines of one model and one size of blocks."""

    kept: ClassVar[dict[Key, dict[str, torch.Tensor]]] = {}

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        before = dict(self.kept)
        super().__init__(vllm_config, role, kv_cache_config)
        self.kept.update(before)


class SaltlessStore(GlobalStore):
    """One that forgets the salts of requests."""

    kept: ClassVar[dict[Key, dict[str, torch.Tensor]]] = {}

    def beside(self, request: Any) -> tuple[Any, ...]:
        return (None, *super().beside(request)[1:])
