"""Fakes of LMCache's server and of its clients. The server is in memory and keeps the KV of chunks
under their tokens (`lmcache.integration.vllm.vllm_multi_process_adapter`)."""

import logging
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from kvproof.live.fakes.store_client import StoreClient
from kvproof.live.fakes.streams import Stream
from kvproof.live.fakes.threads import TaskThread
from kvproof.model.plans.connector import Call

CHUNK_BLOCKS, CHUNK_BLOCKS_MAX = 2, 64


@dataclass
class LoadStoreOp:
    """A load or a store of whole chunks of a request: the chunks of its tokens from `start` to
    `end`, and their blocks. `token_ids` has the tokens from the first of the request on. A load
    does not write the first `skip_first_n_tokens` tokens."""

    block_ids: list[int]
    token_ids: list[int]
    start: int = 0
    end: int = 0
    skip_first_n_tokens: int = 0

    def __len__(self) -> int:
        return len(self.block_ids)


class Ranks(SimpleNamespace):
    """A fake of `ParallelStrategy`: the ranks, in the order of its fields."""

    def __init__(self, *values: Any) -> None:
        names = ("use_mla", "kv_world_size", "kv_worker_id", "actual_world_size")
        more = ("actual_worker_id", "tp_size", "pp_size")
        super().__init__(**dict(zip((*names, *more), values, strict=True)))


class LMCacheClient:
    """The common part of both clients. A low port of the server is read as the number of blocks of
    its chunks. Until April 2026 vLLM gives the number of ranks, the rank and the tokens of a block
    (`sizes`)."""

    def __init__(
        self,
        server_url: str,
        context: object,  # noqa: ARG002
        model_name: str,
        *sizes: int,
        vllm_block_size: int = 0,
        parallel_strategy: Ranks | None = None,
        **_: object,
    ) -> None:
        if parallel_strategy is None:
            number, rank, vllm_block_size = sizes
            parallel_strategy = Ranks(False, number, rank, number, rank, 1, 1)
        self.model, self.ranks = model_name, parallel_strategy
        self.block_tokens = vllm_block_size
        port = server_url.rpartition(":")[2]
        low = port.isdigit() and 0 < int(port) <= CHUNK_BLOCKS_MAX
        self.chunk_blocks = int(port) if low else CHUNK_BLOCKS
        self.chunk_tokens = self.chunk_blocks * vllm_block_size
        self.server = StoreClient()
        self.thread = TaskThread(Stream.clock)

    def num_blocks_per_chunk(self) -> int:
        """The number of blocks in a chunk."""
        return self.chunk_blocks

    def fails(self, call: Call) -> bool:
        """Whether the server does not answer this call. LMCache's clients raise no exception
        then."""
        try:
            return self.server.fails(call)
        except RuntimeError:
            return True

    def key(self, tokens: Sequence[int], end: int, salt: str, rank: int) -> str:
        """The key of the chunk that ends before the token `end`."""
        return f"{self.model}/{salt}/{rank}/{tuple(tokens[:end])}"


class SchedulerClient(LMCacheClient):
    """A fake of `LMCacheMPSchedulerAdapter`: it counts the stored tokens of a prompt. Nothing is
    evicted, so locks of chunks and the ends of sessions have no effect."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.counts: dict[str, Future[int]] = {}

    def maybe_submit_lookup_request(
        self, request_id: str, token_ids: Sequence[int], cache_salt: str = ""
    ) -> None:
        """Start to count the stored tokens of a prompt, unless this was started before."""
        if request_id not in self.counts:
            tokens = tuple(token_ids)
            self.counts[request_id] = self.thread.submit(self._count, tokens, cache_salt)

    def check_lookup_result(self, request_id: str) -> int | None:
        """The number of stored tokens, or None while they are counted."""
        future = self.counts[request_id]
        return future.result() if future.done() else None

    def cleanup_lookup_result(self, request_id: str) -> None:
        """Forget the result of the count."""
        self.counts.pop(request_id, None)

    def end_session(self, request_id: str) -> None:
        """End the session of a request, and forget the result of its count."""
        self.counts.pop(request_id, None)

    def free_lookup_locks(self, **_: object) -> None:
        """Free the locks of counted chunks that are not loaded; this has no effect."""

    def report_block_allocations(self, records: object) -> None:
        """Take the report of the blocks that requests got."""

    def _count(self, tokens: Sequence[int], salt: str) -> int:
        if self.fails("look-up"):
            return 0
        found = 0
        for end in range(self.chunk_tokens, len(tokens) + 1, self.chunk_tokens):
            keys = (self.key(tokens, end, salt, rank) for rank in range(self.ranks.kv_world_size))
            if not all(key in self.server.kept for key in keys):
                break
            found = end
        return found


class WorkerClient(LMCacheClient):
    """A fake of `LMCacheMPWorkerAdapter`: it copies chunks, and reports when a copy is complete."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.caches: list[torch.Tensor] = []
        self.stores: list[tuple[set[str], Future[None]]] = []
        self.loads: list[tuple[set[str], Future[set[int]]]] = []
        self.ended: set[str] = set()
        self.failed: set[int] = set()

    @property
    def use_mla(self) -> bool:
        """Whether all ranks have the same KV."""
        return bool(self.ranks.use_mla)

    @property
    def is_first_rank_of_pp_group(self) -> bool:
        """Whether this rank stores the KV that all ranks have."""
        return bool(self.ranks.actual_worker_id % self.ranks.tp_size == 0)

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Register the memory of each layer."""
        self.caches = [self._by_block(each) for each in kv_caches.values()]
        self.server.is_open = True

    def _by_block(self, cache: torch.Tensor) -> torch.Tensor:
        """A view of a cache whose first dimension is the engine's blocks. In the cache, keys and
        values may come before the blocks, and one block may consist of several kernel blocks."""
        keys_first = cache.dim() > 3 and cache.shape[0] == 2
        blocks_first = cache.movedim(1, 0) if keys_first else cache
        kernel_tokens = Stream.clock.kernel_tokens or self.block_tokens
        return blocks_first.unflatten(0, (-1, self.block_tokens // kernel_tokens))

    def batched_submit_store_requests(
        self, names: Sequence[str], ops: Sequence[LoadStoreOp], _event: object, **salts: Any
    ) -> None:
        """Start to store chunks."""
        self.stores.append((set(names), self._begun(self._store, ops, **salts)))

    def batched_submit_retrieve_requests(
        self, names: Sequence[str], ops: Sequence[LoadStoreOp], _event: object, **salts: Any
    ) -> None:
        """Start to load chunks."""
        self.loads.append((set(names), self._begun(self._load, ops, **salts)))

    def _begun(
        self, work: Any, ops: Sequence[LoadStoreOp], cache_salts: Sequence[str] = ()
    ) -> "Future[Any]":
        return self.thread.submit(work, ops, cache_salts or [""] * len(ops))

    def get_finished(self, finished: Collection[str]) -> tuple[set[str], set[str]]:
        """The ended requests whose stores are all complete, and the requests whose loads are
        complete."""
        self.stores = [(names, each) for names, each in self.stores if not _ready(each)]
        loaded = [each for each in self.loads if _ready(each[1])]
        self.loads = [each for each in self.loads if each not in loaded]
        for _, future in loaded:
            self.failed |= future.result()
        self.ended |= set(finished)
        stored = self.ended.difference(*(names for names, _ in self.stores))
        self.ended -= stored
        return stored, set().union(*(names for names, _ in loaded))

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks that were not loaded; each is returned once."""
        failed, self.failed = self.failed, set()
        return failed

    def shutdown(self) -> None:
        """End the thread and the connection."""
        self.thread.shutdown()
        self.server.is_open = False

    def _chunks(self, op: LoadStoreOp, salt: str) -> Iterator[tuple[str, int, list[int]]]:
        """The key, the first token and the blocks of each chunk."""
        for number, start in enumerate(range(op.start, op.end, self.chunk_tokens)):
            first = number * self.chunk_blocks
            end = start + self.chunk_tokens
            key = self.key(op.token_ids, end, salt, self.ranks.kv_worker_id)
            yield key, start, op.block_ids[first : first + self.chunk_blocks]

    def _store(self, ops: Sequence[LoadStoreOp], salts: Sequence[str]) -> None:
        if self.fails("put"):
            return
        for op, salt in zip(ops, salts, strict=True):
            for key, _, blocks in self._chunks(op, salt):
                pages = [_bytes(cache[block]) for block in blocks for cache in self.caches]
                self.server.note(key)
                self.server.kept.setdefault(key, b"".join(pages))

    def _load(self, ops: Sequence[LoadStoreOp], salts: Sequence[str]) -> set[int]:
        """Load the chunks. Returns the blocks of the loads that failed."""
        failed: set[int] = set()
        for op, salt in zip(ops, salts, strict=True):
            kept = [self.server.kept.get(key) for key, _, _ in self._chunks(op, salt)]
            if self.fails("get") or None in kept:
                failed.update(op.block_ids)
                continue
            for key, start, blocks in self._chunks(op, salt):
                self._fill(self.server.kept[key], blocks, op.start + op.skip_first_n_tokens - start)
        return failed

    def _fill(self, kept: bytes, blocks: Sequence[int], skipped_tokens: int) -> None:
        begin = 0
        for number, block in enumerate(blocks):
            for cache in self.caches:
                page = cache[block]
                size = page.numel() * page.element_size()
                if (number + 1) * self.block_tokens > skipped_tokens:
                    values = torch.frombuffer(
                        bytearray(kept[begin : begin + size]), dtype=page.dtype
                    )
                    page.copy_(values.view(page.shape))
                begin += size


def _ready(future: "Future[Any]") -> bool:
    """Whether a future is done. Raises the exception of its task."""
    if future.done():
        future.result()
        return True
    return False


def _bytes(page: torch.Tensor) -> bytes:
    return bytes(page.contiguous().flatten().view(torch.uint8).numpy().tobytes())


def _uses_latent_attention(model: Any) -> bool:
    return bool(model.use_mla)


MODULES: dict[str, dict[str, Any]] = {
    "lmcache": {},
    "lmcache.utils": {"init_logger": logging.getLogger},
    "lmcache.integration": {},
    "lmcache.integration.vllm": {},
    "lmcache.integration.vllm.utils": {"mla_enabled": _uses_latent_attention},
    "lmcache.integration.vllm.vllm_multi_process_adapter": {
        "LMCacheMPSchedulerAdapter": SchedulerClient,
        "LMCacheMPWorkerAdapter": WorkerClient,
        "LoadStoreOp": LoadStoreOp,
        "ParallelStrategy": Ranks,
    },
    "lmcache.v1": {},
    "lmcache.v1.multiprocess": {},
    "lmcache.v1.multiprocess.custom_types": {
        "RequestAllocationRecord": SimpleNamespace,
        "BlockAllocationRecord": SimpleNamespace,
    },
}
"""The names that vLLM imports from LMCache, by module."""
