"""An offloading tier for a worker on the CPU: vLLM's own copies only on a GPU. What counts the
blocks is vLLM's."""

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class CopyingSpec(CPUOffloadingSpec):  # type: ignore[misc]
    """vLLM's tier in CPU memory, with another worker."""

    def get_worker(self, kv_caches: Any) -> Any:
        return Copying(kv_caches, self.num_chunks)


class Copying(OffloadingWorker):  # type: ignore[misc]
    """It copies whole blocks when it is told to."""

    def __init__(self, kv_caches: Any, num_chunks: int) -> None:
        self.caches = [each.tensor for each in kv_caches.tensors]
        self.tier = [torch.zeros(num_chunks, each.shape[1]).to(each) for each in self.caches]
        self.finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, self.caches, self.tier, src_spec, dst_spec)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, self.tier, self.caches, src_spec, dst_spec)

    def _copy(self, job_id: int, sources: Any, targets: Any, src: Any, dst: Any) -> bool:
        for source, target in zip(sources, targets, strict=True):
            target[dst.block_ids.tolist()] = source[src.block_ids.tolist()]
        self.finished.append(TransferResult(job_id, True))
        return True

    def get_finished(self) -> list[TransferResult]:
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        pass
