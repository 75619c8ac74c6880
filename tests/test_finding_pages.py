"""Each finding's page says in one form what a user sees of it on a real engine, or why nothing.

`tests/engine/test_findings.py` looks at the engines themselves.
"""

import re

import pytest

from tests.engine.test_findings import NAMES, shown
from tests.findings import ISSUES, NO_DEFECTS

PAGES = [*ISSUES, *NO_DEFECTS]
HEADING = "\n## On a real engine\n\n"
NOT_SEEN = "Not seen on a real engine, because "
LABELS = ["Model and options", "As released", "With the patch", "Sanitizer"]
RUN = "`pytest -m engine tests/engine/test_findings.py -k {}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_has_the_section(page: object) -> None:
    name = page.parent.name  # type: ignore[attr-defined]
    text = page.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert text.count(HEADING) == 1
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    if name not in NAMES:
        assert section.startswith(NOT_SEEN)
        return
    words = " ".join(section.split())
    assert words.startswith("vLLM 0.32.0, CPU build, random weights: " + RUN.format(name) + ".")
    assert re.findall(r"^- \*(.*)\*:", section, re.MULTILINE) == LABELS
    sanitizer = words.partition("- *Sanitizer*: ")[2].partition(". ")[0]
    assert set(re.findall(r"`(\w+)`", sanitizer)) == set(shown(name).named)
    assert bool(shown(name).named) != ("silent" in sanitizer or "does not watch" in sanitizer)
