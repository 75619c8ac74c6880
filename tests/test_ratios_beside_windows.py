"""Unequal kernel blocks per block of P and D, beside a window: modelled where no block of D begins
inside one of P, and refused elsewhere, because P keeps less than such a block holds."""

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict

PROMPT = "abcdefghi"
WINDOWS = (2, 3, 4)
NO_MULTIPLES = [(1, 2), (1, 4), (2, 3), (2, 4), (3, 2), (6, 4)]
"""Kernel blocks of a block on P and on D, those of P no multiple of those of D."""


def pair(prefill: int, decode: int, *groups: Group, tokens: int = 5) -> Cluster:
    """P and D with kernel blocks of one token, so many of them in a block."""

    def engine(name: str, role: str, ratio: int) -> EngineConfig:
        wide = tuple(Group(g.kind, g.block_size * ratio, g.window) for g in groups)
        return EngineConfig(name, wide, 30, role, 16, physical_per_logical=ratio)

    engines = engine("P", "prefill", prefill), engine("D", "decode", decode)
    return Cluster("ratios", engines, (Job("r0", PROMPT[:tokens], 2),))


def beside(window: int) -> tuple[Group, Group]:
    """Full attention and a window."""
    return Group("full", 1), Group("window", 1, window)


@pytest.mark.parametrize(("prefill", "decode"), NO_MULTIPLES)
def test_a_block_of_d_that_begins_inside_one_of_p_is_refused(prefill: int, decode: int) -> None:
    said = (
        "Cluster ratios combines unequal physical_per_logical and windows, where P keeps fewer "
        "tokens than a block of D may need. Use a physical_per_logical of P that is a multiple of "
        "D's, or no window group."
    )
    with pytest.raises(UsageError) as refused:
        pair(prefill, decode, *beside(3))
    assert str(refused.value) == said
    assert pair(prefill, decode, Group("full", 1)).disaggregated


def test_beside_a_state_only_a_d_that_caches_prefixes_is_refused() -> None:
    assert not CLUSTERS["pd-ratio-state"].decode.prefix_caching
    with pytest.raises(UsageError) as refused:
        pair(2, 1, Group("full", 1), Group("mamba", 1))
    assert str(refused.value).endswith("Use prefix_caching false for D, or no Mamba group.")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("prefill", "decode"), [(2, 1), (4, 1), (4, 2), (6, 3), (2, 2)])
@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_modelled_breaks_nothing(prefill: int, decode: int, window: int) -> None:
    for tokens in range(2, len(PROMPT) + 1):
        cluster = pair(prefill, decode, *beside(window), tokens=tokens)
        found = explore(cluster, tuple(INVARIANTS.values()), 2_000)
        assert found.verdict is Verdict.EXHAUSTED, (tokens, found.finding)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("prefill", "decode"), NO_MULTIPLES)
def test_what_is_refused_would_pair_the_null_block(
    prefill: int, decode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "checks", ())
    null = (INVARIANTS["null_block_is_nobody"],)
    verdicts = {
        explore(pair(prefill, decode, *beside(window), tokens=n), null, 2_000).verdict
        for window in WINDOWS
        for n in range(2, len(PROMPT) + 1)
    }
    assert Verdict.VIOLATED in verdicts
