"""A layer reads the blocks of its group's table. So each layer is in one group, which keeps what
the layer reads: a window of at least its own, all tokens for full attention, states for Mamba."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import StartedGroup, Startup
from kvproof.model.plans.startup import WINDOWS, Layer
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """Each layer is in one group that suits it."""
    for index, worker in enumerate(start.workers):
        for name, layer in worker.layers.items():
            homes = [group for group in worker.groups if name in group.layers]
            has = reason(
                "layer",
                "worker {worker} has {name}: {layer}",
                worker=index,
                name=name,
                layer=layer.words,
            )
            if len(homes) != 1:
                yield because(has, reason("groups", "{count} groups have it", count=len(homes)))
            elif not _suits(homes[0], layer):
                keeps = f"{homes[0].kind}, {homes[0].window or 'all'} tokens"
                yield because(has, reason("keeps", "its group keeps: {keeps}", keeps=keeps))


def _suits(group: StartedGroup, layer: Layer) -> bool:
    if "mamba" in (group.kind, layer.kind):
        return group.kind == layer.kind
    if not group.window:  # all tokens are kept
        return group.kind != "other"
    if layer.kind in WINDOWS:
        return group.kind in WINDOWS and group.window >= layer.window
    return group.kind == layer.kind and group.window == layer.window


RULE = EngineRule(
    id="layer_keeps_what_it_reads",
    name="each layer is in one cache group, which keeps all that the layer reads",
    origin="get_kv_cache_groups; vllm#48256",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
