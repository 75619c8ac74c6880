"""These hooks note, of an engine whose bytes are watched, which blocks are cached and which loads
end."""

from typing import Any

from vllm.v1.core.kv_cache_utils import get_group_id

from kvproof.live.observer.calls import Noting
from kvproof.watch.bytes.entries import WatchedBlocks
from kvproof.watch.calls import Calls


class ByteCalls(Calls):
    """Notes which blocks enter and leave the prefix cache, and the requests whose load is over."""

    entries: WatchedBlocks | None = None

    def has_mapped(self, result: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        super().has_mapped(result, args, kwargs)
        if self.entries is not None:
            key, block = args
            group = self.cfg.groups[get_group_id(key)]
            tokens = getattr(block, "block_hash_num_tokens", None) or 0
            if not group.attention or tokens % group.block_size == 0:
                self.entries.enters(block.block_id, get_group_id(key), tokens, key)

    def has_unmapped(self, removed: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        super().has_unmapped(removed, args, kwargs)
        if self.entries is not None and not self.slices.mapped.of(args[1]):
            self.entries.leaves(args[1])

    def loaded(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
        name = request.request_id
        if self.entries is not None:
            failed = name in self.scheduler.failed_recving_kv_req_ids
            self.entries.loads.append((name, failed))
        yield from super().loaded(request, *args, **kwargs)
