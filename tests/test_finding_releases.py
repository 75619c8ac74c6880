"""The findings and the heat map agree: a release on which a reproducer fails is not good in the
map, one on which it passes is not bad, and the page says what both show."""

from tests.finding_releases import (
    README,
    ROW,
    disagreements,
    rewritten,
    seen,
    tried,
)
from tests.findings import FINDINGS, ISSUES, OTHERS


def test_the_reproducers_and_the_heat_map_agree() -> None:
    assert disagreements(tried(), seen()) == []


def test_the_page_says_on_which_releases_a_finding_is() -> None:
    """Rewrite it with `python -m tests.finding_releases`."""
    text = README.read_text(encoding="utf-8")
    assert rewritten(text) == text
    assert {row["name"] for row in ROW.finditer(text)} == set(tried())


def test_every_finding_is_declared_and_has_a_row_in_the_map_or_is_newer() -> None:
    """The survey of all releases takes hours. A finding that came after it was run on the releases
    that its reproducer names."""
    assert sorted(tried()) == sorted(path.parent.name for path in (*ISSUES, *OTHERS))
    newer = set(FINDINGS) - set(seen().verdicts)
    assert all(len(tried()[name].fails) > 1 for name in newer)
