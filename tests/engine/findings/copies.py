"""Copies of blocks for hits inside a block. What compares a copy with its source runs in the
engine's process."""

from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import Engine, Seen, alone
from tests.engine.workloads import add, tokens

_core: Any = None
_copied: list[Any] = []
_equal: list[float] = []


def copy_every_view(_llm: Any) -> None:
    """Cure vllm#55112 beside what is looked for: the released function copies one view of several
    that share their memory."""
    import torch
    from vllm.v1.worker import gpu_model_runner

    def copy(caches: Any, blocks: int, copies: Any) -> None:
        sources, targets = torch.tensor([tuple(each) for each in copies]).unbind(1)
        for cache in {(each.data_ptr(), each.shape): each for each in caches}.values():
            by_block = cache.unflatten(0, (blocks, cache.shape[0] // blocks))
            by_block[targets] = by_block[sources]
        if _core is not None:
            held = _held_by_attention(_core.scheduler)
            _copied.extend(each for each in copies if each.dst_block_id in held)

    gpu_model_runner.copy_kv_cache_blocks_inplace = copy


def watch(llm: Any) -> None:
    """Compare from now on, after each step."""
    global _core
    _core = llm.llm_engine.engine_core.engine_core
    _equal.clear()
    step = _core.step_fn

    def stepped() -> Any:
        _copied.clear()
        result = step()
        for copy in _copied:
            _compare(_core, copy)
        return result

    _core.step_fn = stepped


def _held_by_attention(scheduler: Any) -> set[int]:
    """The attention blocks of all requests."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    attention = [each for each in managers if type(each).__name__ == "FullAttentionManager"]
    tables = [table for each in attention for table in each.req_to_blocks.values()]
    return {block.block_id for table in tables for block in table}


def _compare(core: Any, copy: Any) -> None:
    """The hit is half of a block. In the other half the request has computed other tokens."""
    runner = core.model_executor.driver_worker.worker.model_runner
    blocks = core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    for name, layer in runner.compilation_config.static_forward_context.items():
        cache = layer.kv_cache
        if "attn" in name and cache.shape[0] == blocks:
            equal = (cache[copy.src_block_id] == cache[copy.dst_block_id]).float().mean()
            _equal.append(round(float(equal), 2))


def equal(_llm: Any) -> list[float]:
    """The part of each copy that equals its source, in each layer."""
    return _equal


BLOCK_SIZE = 64
HALF = BLOCK_SIZE // 2
FINER = {
    "block_size": BLOCK_SIZE,
    "mamba_cache_mode": "align",
    "max_num_seqs": 32,
    "prefix_match_unit": HALF,
}
CURED = (["call", f"{__name__}:copy_every_view"],)


def lacking(engine: Engine, beside: list[list[Any]]) -> Seen:
    """The copies that lack their hit, while an engine serves these requests at once."""
    engine.inside(f"{__name__}:watch")
    engine.take(*beside, ["run"])
    equal = engine.inside(f"{__name__}:equal")
    assert equal
    return Seen("copies that lack the hit", [part for part in equal if part < 0.5], [])


@alone(
    "attention first",
    FINER | {"max_model_len": 256, "num_gpu_blocks_override": 20},
    before=CURED,
    named=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
)
def copied_before_filled(engine: Engine) -> Iterator[Seen]:
    """A block is copied in the step that fills it, and the copy has the content from before: a long
    prompt, and beside it one with the same first block."""
    long = tokens(1, 2 * BLOCK_SIZE + 1)
    parting = long[:BLOCK_SIZE] + tokens(4, BLOCK_SIZE)
    engine.fill(150, 4)
    engine.ask(long[:HALF] + tokens(2, 1), 1)
    engine.ask(long[:HALF] + tokens(3, BLOCK_SIZE), 1)
    engine.inside("evict_one")
    yield lacking(engine, [add("long", long, 1), add("parting", parting, 6)])


@alone(
    "mamba",
    FINER | {"max_model_len": 512, "max_num_batched_tokens": 512, "num_gpu_blocks_override": 40},
    before=CURED,
)
def copies_in_one_batch(engine: Engine) -> Iterator[Seen]:
    """Two requests go on inside the same block in one step, and one gets a copy of the other's
    copy."""
    long = tokens(1, 4 * BLOCK_SIZE)
    engine.fill(150, 4)
    engine.ask(long[: BLOCK_SIZE + HALF] + tokens(2, 1), 1)
    yield lacking(engine, [add("one", long, 1), add("two", long, 1)])
