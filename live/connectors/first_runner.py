"""The calls of a connector's worker side by vLLM's first model runner (`GPUModelRunner`).

Model Runner V2 has calls of its own (`ActiveKVConnector`). The first one uses
`KVConnectorModelRunnerMixin`. Beside a drafter it waits for saves when the drafter has run, which
is after it has asked what is over. In older releases it also gives a connector that wants it one
tensor for the KV of all layers, in which a block has all of them (`prefer_cross_layer_blocks`).
"""

from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from kvproof.live import adapt
from kvproof.live.connectors.caches import of_layer
from kvproof.live.contract.lookup import may_take
from kvproof.live.fakes.replaced import OTHER_BACKEND

MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin:KVConnectorModelRunnerMixin"


ATTENTION_GROUP = "vllm.v1.worker.utils:AttentionGroup"


class AcrossLayers(NamedTuple):
    """The KV caches by the name of the layer, views of one tensor, that tensor, and the attention
    backend that gave its shape."""

    named: dict[str, Any]
    whole: Any
    backend: Any


class FirstRunner:
    """The calls of the first model runner, under the names that those of Model Runner V2 have."""

    def __init__(self, connector: Any, vllm_config: Any) -> None:
        self.connector, self.vllm_config = connector, vllm_config
        self.mixin: Any = adapt.first([MIXIN])
        self.drafts = vllm_config.speculative_config is not None
        self.step: AbstractContextManager[Any] | None = None
        self.output: Any = None

    def across_layers(self, kv_cache_config: Any, kernel_blocks: int) -> AcrossLayers | None:
        """The KV caches in one tensor, if the connector wants that and vLLM supports it. An
        attention block consists of `kernel_blocks` kernel blocks."""
        import torch

        wanted = getattr(self.mixin, "use_uniform_kv_cache", None)
        if wanted is None:
            return None
        groups = [_of_group(*each) for each in enumerate(kv_cache_config.kv_cache_groups)]
        dtype = self.vllm_config.cache_config.cache_dtype
        typed = may_take(wanted, "cache_dtype")
        if not (wanted(groups, dtype) if typed else wanted(groups)):
            return None
        size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size // kernel_blocks
        parts = kv_cache_config, groups, dtype, torch.device("cpu"), [size]
        return AcrossLayers(*self.mixin.allocate_uniform_kv_caches(*parts))

    def register(self, across: AcrossLayers) -> None:
        """Give the connector the tensor."""
        from vllm.distributed.kv_transfer.kv_connector.utils import copy_kv_blocks

        self.connector.register_cross_layers_kv_cache(across.whole, across.backend)
        self.connector.set_host_xfer_buffer_ops(copy_kv_blocks)

    def begin(self, output: Any) -> None:
        """Begin a step. Blocks are not zeroed or copied yet, although they already are when Model
        Runner V2 reports preemptions to its connector."""
        self.connector.handle_preemptions(output.kv_connector_metadata)

    def pre_forward(self, output: Any) -> None:
        """Make the calls before a forward pass."""
        self.step = self.mixin.maybe_get_kv_connector_output(output, defer_finalize=self.drafts)
        self.output = self.step.__enter__()

    def post_forward(self, _finished_req_ids: AbstractSet[str]) -> Any:
        """Make the calls after a forward pass, and after one of the drafter."""
        step, self.step = self.step, None
        assert step is not None
        step.__exit__(None, None, None)
        if self.drafts:
            self.mixin.finalize_kv_connector()
        return self.output

    def break_off(self, error: Exception) -> None:
        """End a step whose forward pass failed with this error, which the caller reports. Further
        errors at the end of the step are not reported."""
        step, self.step = self.step, None
        if step is not None:
            with suppress(Exception):
                step.__exit__(type(error), error, error.__traceback__)

    def no_forward(self, output: Any) -> Any:
        """Make the calls of a step without a forward pass."""
        return self.mixin.kv_connector_no_forward(output, self.vllm_config)


def _of_group(number: int, group: Any) -> list[Any]:
    """The layers of a cache group with each spec, with a backend that can have all layers in a
    block."""
    kind, backend = adapt.first([ATTENTION_GROUP]), adapt.first([OTHER_BACKEND])
    names: dict[Any, list[str]] = {}
    for name in group.layer_names:
        names.setdefault(of_layer(group, name), []).append(name)
    made = []
    for spec, layers in names.items():
        if hasattr(spec, "indexes_kv_by_block_stride"):  # then vLLM notes it there
            by_stride = backend.indexes_kv_by_block_stride()
            spec = replace(spec, indexes_kv_by_block_stride=by_stride)
        made.append(kind(backend, layers, spec, number))
    return made
