"""Keeps what Hypothesis draws to the seed.

Hypothesis takes one number in twenty from the constants of the modules that are imported. Then a
seed would give other choices where another module was imported before, where kvproof is installed
in another way, or where another vLLM has another constant in its source.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis.internal.conjecture import providers

READS = "_get_local_constants"
"""The function of Hypothesis that collects constants of modules. Releases without it draw none."""


@contextmanager
def of_the_seed() -> Iterator[None]:
    """Keep Hypothesis from drawing constants of imported modules until the block ends."""
    reads = getattr(providers, READS, None)
    if reads is None:
        yield
        return
    from hypothesis.internal.constants_ast import Constants

    none = Constants()
    setattr(providers, READS, lambda: none)
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        yield
    finally:
        setattr(providers, READS, reads)
        providers.CONSTANTS_CACHE.cache.clear()
