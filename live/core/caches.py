"""Reads the KV caches that a start-up made, as facts."""

from typing import Any

from kvproof.live import adapt
from kvproof.live.core.layers import as_here
from kvproof.model.facts.startup import Pages, StartedGroup, StartedWorker
from kvproof.model.plans.engine import WINDOWS, Layer


class Caches:
    """The KV caches of a started engine: `made` is the config of its scheduler, and `vllm_config`
    that of the engine."""

    def __init__(self, vllm_config: Any, made: Any) -> None:
        self.vllm_config, self.made = vllm_config, made

    @property
    def concurrency(self) -> float:
        """The number of requests of the largest length that vLLM reports to fit."""
        counted = adapt.named("get_max_concurrency_for_kv_cache_config")
        return float(counted(self.vllm_config, self.made))

    @property
    def groups(self) -> tuple[StartedGroup, ...]:
        """The cache groups of the scheduler."""
        return tuple(map(self._group, self.made.kv_cache_groups))

    def worker(self, layers: dict[str, Layer], memory: int, config: Any) -> StartedWorker:
        """A worker, with the caches that its `config` makes it allocate."""
        groups = tuple(map(self._group, config.kv_cache_groups))
        layers = {name: as_here(layer) for name, layer in layers.items()}
        specs = {
            name: getattr(each.kv_cache_spec, "kv_cache_specs", {}).get(name, each.kv_cache_spec)
            for each in config.kv_cache_groups
            for name in each.layer_names
        }
        pages: list[Pages] = []
        buffers: list[int] = []
        for index, tensor in enumerate(config.kv_cache_tensors):
            one = hasattr(tensor, "layers") or bool(getattr(tensor, "block_stride", 0))
            buffer = 0 if one else index  # parts of one buffer, or a buffer each
            if buffer == len(buffers):
                buffers.append(tensor.size)
            names = tensor.layers if hasattr(tensor, "layers") else tensor.shared_by
            for nth, name in enumerate(names):
                start = getattr(tensor, "offset", 0) + nth * getattr(tensor, "layer_stride", 0)
                stride = getattr(tensor, "block_stride", 0) or tensor.size // config.num_blocks
                size = specs[name].page_size_bytes if name in specs else 0
                pages.append(Pages(name, buffer, start, stride, size))
        return StartedWorker(
            layers, memory, config.num_blocks, groups, tuple(buffers), tuple(pages)
        )

    def _group(self, group: Any) -> StartedGroup:
        import vllm.v1.kv_cache_interface as kinds

        spec = group.kv_cache_spec
        parts = [*getattr(spec, "kv_cache_specs", {}).values()] or [spec]
        first = parts[0]
        named = {
            "mamba": kinds.MambaSpec,
            "window mla": getattr(kinds, "SlidingWindowMLASpec", ()),
            "window": kinds.SlidingWindowSpec,
            "chunked": kinds.ChunkedLocalAttentionSpec,
            "hidden": getattr(kinds, "HiddenStateCacheSpec", ()),
            "mla": kinds.MLAAttentionSpec,
            "ring": getattr(kinds, "CircularBufferSpec", ()),
            "rswa": getattr(kinds, "RSWASpec", ()),
            "sink": kinds.SinkFullAttentionSpec,
            "full": kinds.FullAttentionSpec,
        }
        kind = next((each for each, cls in named.items() if isinstance(first, cls)), "other")
        of_kind = {"chunked": "attention_chunk_size", "rswa": "rswa_window"}
        window = 0
        if kind in (*WINDOWS, *of_kind):
            window = getattr(first, of_kind.get(kind, "sliding_window"))
        reported = getattr(kinds, "get_kv_cache_spec_kind", lambda _: None)(spec)
        return StartedGroup(
            *(kind, first.block_size, window, tuple(group.layer_names)),
            getattr(reported, "value", ""),
            self._entries(spec),
            tuple({self._entries(each) for each in parts}),
        )

    def _entries(self, spec: Any) -> int | None:
        """The entries of a request's block table, as the worker makes it for a spec. None in a
        release whose specs do not say it."""
        counted = getattr(spec, "max_num_blocks_per_req", None)
        return (
            None
            if counted is None
            else counted(self.vllm_config, self.vllm_config.model_config.max_model_len)
        )
