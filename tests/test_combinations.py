"""The page of combinations: it has every pair of features, and this vLLM agrees with it."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import combinations as combined

PAGE = Path(__file__).parent.parent / "reports" / "combinations.md"
FEW = [
    ("sessions", "extra_keys"),
    ("store", "embeddings"),
    ("oversized", "pd"),
    ("push", "follow_up_turns"),
    ("push", "kernel_blocks"),
    ("store", "push"),
    ("retention", "no_prefix_cache"),
    ("eagle", "partial_block_hits"),
]


def marks(version: str) -> dict[frozenset[str], str]:
    """The mark of each pair in the table of a release."""
    text = PAGE.read_text(encoding="utf-8").split(f"## Pairs on {version}\n")[1]
    rows = re.findall(r"^\| \d+ (\w+) \|(.*)\|$", text.split("###")[0], re.MULTILINE)
    names = [name for name, _ in rows]
    found = {}
    for name, cells in rows:
        for other, cell in zip(names, cells.split("|"), strict=True):
            if cell.strip():
                found[frozenset((other, name))] = cell.strip()
    return found


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_the_page_has_each_pair(version: str) -> None:
    found = marks(version)
    assert found.keys() == {frozenset(pair) for pair in combinations(combined.IDS, 2)}
    assert set(found.values()) <= set(combined.MARKS.values())


@pytest.mark.live
@pytest.mark.parametrize("pair", FEW, ids="+".join)
def test_this_vllm_agrees_with_the_page(pair: tuple[str, ...]) -> None:
    from vllm import __version__

    version = __version__.split("+")[0]
    if version not in ("0.32.0", "0.33.0"):
        pytest.skip(f"the page has tables of 0.32.0 and 0.33.0, and this is vLLM {version}")
    ordered = tuple(sorted(pair, key=combined.IDS.index))
    kind, why = combined.combination(ordered)
    assert combined.MARKS[kind] == marks(version)[frozenset(pair)], why
