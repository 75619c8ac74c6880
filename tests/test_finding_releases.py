"""The findings and the heat map agree: a release on which a reproducer fails is not good in the
map, one on which it passes is not bad, and the page says what both show."""

from tests.finding_releases import (
    README,
    ROW,
    Seen,
    Tried,
    disagreements,
    fails_on,
    rewritten,
    seen,
    tried,
)
from tests.findings import FINDINGS, ISSUES, OTHERS

RELEASES = ["0.28.0", "0.30.0", "0.32.0", "0.33.0"]


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


def test_a_contradiction_is_told() -> None:
    known = {"a": Tried(["0.30.0", "0.32.0"], ["0.33.0"])}
    right = {"0.30.0": "UNKNOWN", "0.32.0": "VIOLATED", "0.33.0": "SAMPLED"}
    assert disagreements(known, Seen(RELEASES, {"a": right})) == []
    wrong = {"0.30.0": "SAMPLED", "0.32.0": "VIOLATED", "0.33.0": "VIOLATED"}
    assert disagreements(known, Seen(RELEASES, {"a": wrong})) == [
        "a on 0.30.0: the reproducer fails, the map says SAMPLED",
        "a on 0.33.0: the reproducer passes, the map says VIOLATED",
    ]
    known["a"].differs["0.33.0"] = "another workload"
    assert len(disagreements(known, Seen(RELEASES, {"a": wrong}))) == 1
    assert len(disagreements(known, Seen(RELEASES, {"a": right}))) == 1


def test_releases_are_told_in_words() -> None:
    verdicts = {"0.28.0": "VIOLATED", "0.33.0": "SAMPLED"}
    one = Tried(["0.30.0", "0.32.0"], ["0.33.0"])
    assert fails_on(one, verdicts, RELEASES) == "0.28 to 0.32, not 0.33"
    assert fails_on(Tried(["0.30.0", "0.33.0"], []), {}, RELEASES) == "0.30, 0.33"
