"""The calls of a connector's worker side by vLLM's first model runner (`GPUModelRunner`).

Model Runner V2 has calls of its own (`ActiveKVConnector`). The first one uses
`KVConnectorModelRunnerMixin`. Beside a drafter it waits for saves when the drafter has run, which
is after it has asked what is over. In older releases it also gives a connector that wants it one
tensor for the KV of all layers, in which a block has all of them (`prefer_cross_layer_blocks`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from kvproof.live import adapt
from kvproof.live.connectors.caches import of_layer
from kvproof.live.contract.lookup import may_take

MIXIN = "KVConnectorModelRunnerMixin"


class AcrossLayers(NamedTuple):
    """The KV caches by the name of the layer, views of one tensor, that tensor, and the attention
    backend that gave its shape."""

    named: dict[str, Any]
    whole: Any
    backend: Any


def across_layers(
    vllm_config: Any, kv_cache_config: Any, kernel_blocks: int
) -> AcrossLayers | None:
    """The KV caches in one tensor, if the connector wants that and vLLM supports it. An attention
    block consists of `kernel_blocks` kernel blocks."""
    import torch

    mixin = adapt.named(MIXIN)
    wanted = getattr(mixin, "use_uniform_kv_cache", None)
    if wanted is None:
        return None
    groups = [_of_group(*each) for each in enumerate(kv_cache_config.kv_cache_groups)]
    dtype = vllm_config.cache_config.cache_dtype
    typed = may_take(wanted, "cache_dtype")
    if not (wanted(groups, dtype) if typed else wanted(groups)):
        return None
    size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size // kernel_blocks
    parts = kv_cache_config, groups, dtype, torch.device("cpu"), [size]
    return AcrossLayers(*mixin.allocate_uniform_kv_caches(*parts))


@contextmanager
def forward(output: Any, *, drafts: bool) -> Iterator[Any]:
    """Make the calls around a forward pass, which runs in the block, and after one of the drafter.
    Gives the connector's report, which is whole at the end. If the pass fails, further errors at
    the end of the step are not reported."""
    mixin = adapt.named(MIXIN)
    step = mixin.maybe_get_kv_connector_output(output, defer_finalize=drafts)
    report = step.__enter__()
    try:
        yield report
    except Exception as error:
        with suppress(Exception):
            step.__exit__(type(error), error, error.__traceback__)
        raise
    step.__exit__(None, None, None)
    if drafts:
        mixin.finalize_kv_connector()


def no_forward(output: Any, vllm_config: Any) -> Any:
    """Make the calls of a step without a forward pass."""
    return adapt.named(MIXIN).kv_connector_no_forward(output, vllm_config)


def _of_group(number: int, group: Any) -> list[Any]:
    """The layers of a cache group with each spec, with a backend that can have all layers in a
    block."""
    kind, backend = adapt.named("AttentionGroup"), adapt.named("FlexAttentionBackend")
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
