"""How a random cluster gets a feature: the values that are drawn, and what sets them."""

from kvproof.model.config.random_settings import BLOCK_SIZES, RandomSettings

MATCH_UNITS = (1, 2)
"""Tokens between two prefixes with a hash, in a random cluster."""

CHECKPOINT_BLOCK = 8
"""The smallest block size, in tokens, of a Mamba group with a prefix checkpoint in a random
cluster. It is larger than the distance of two prefixes with a hash."""

RETENTIONS = (0, 0, 8, 16)
"""The retention intervals of random clusters, in tokens."""

DRAFTS = (1, 2, 3)
"""The numbers of drafts after each sampled token in random clusters."""

LONG_PREFILLS = (2, 3, 4, 8)
"""The limits of long prompts in random clusters, in tokens."""

WATERMARKS = (1, 2, 3)
"""The watermarks of random clusters, in blocks."""

KERNEL_BLOCKS = (1, 2, 4)
"""Kernel blocks per block of an engine, in a random cluster."""

TENSOR_RATIOS = (1, 1, 1, 2)
"""Kernel blocks per block of both engines, in a random cluster."""


def unequal_block_sizes(settings: RandomSettings) -> None:
    for group in settings.attention():
        group["block_size"] = settings.choose(BLOCK_SIZES)
    for group in settings.aligned():
        group["block_size"] = max(BLOCK_SIZES)


def hash_lookahead(settings: RandomSettings) -> None:
    eagle(settings)
    settings.on_engines(hash_lookahead_tokens=1)


def prefix_checkpoint(settings: RandomSettings) -> None:
    aligned = [*settings.aligned()]
    if not aligned:
        return
    unit = settings.choose(MATCH_UNITS)
    for group in aligned:
        group["block_size"] = max(group["block_size"], CHECKPOINT_BLOCK)
    for group in settings.attention():
        group["block_size"] = unit  # a wider window prevents hits inside a block
    eagle(settings)
    settings.on_engines(match_unit=unit, prefix_checkpoint=True)


def eagle(settings: RandomSettings) -> None:
    """Draw the drafts, and give the drafter layers in all attention groups."""
    settings.on_engines(drafts=settings.choose(DRAFTS))
    for group in settings.attention():
        group["eagle"] = True


def failures(settings: RandomSettings) -> None:
    settings.on_cluster(failures=settings.choose((1, 2)) if settings.pair else 1)
    if not settings.pair:
        settings.on_engines(store=True)


def kernel_blocks(settings: RandomSettings) -> None:
    settings.kernel_blocks = (settings.choose(KERNEL_BLOCKS), settings.choose(KERNEL_BLOCKS))
    if any(settings.aligned()):  # then vLLM's handshake refuses a D that caches prefixes
        settings.decode.update(prefix_caching=False, match_unit=0, prefix_checkpoint=False)


def one_way(settings: RandomSettings) -> None:
    settings.on_engines(one_way=settings.pair)


def pd(settings: RandomSettings) -> None:
    settings.on_engines(physical_per_logical=settings.choose(TENSOR_RATIOS))
    settings.on_cluster(failures=settings.choose((0, 1, 2)))
