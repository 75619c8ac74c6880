"""The gallery shows what the program prints, and its pictures are of the same traces."""

import pytest

from kvproof.live.deviations.registry import KNOWN
from kvproof.model.faults.registry import FAULTS
from kvproof.reports.stories import STORIES
from tests.gallery.shown import LINES, PAGE, PICTURES, SHOWN, Shown, output, page

AGAIN = "run python -m tests.gallery, and look at the pictures"
KIB_MAX = 150


def test_the_page_is_what_is_printed() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), AGAIN


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)
def test_a_picture(shown: Shown) -> None:
    made = output(shown)
    assert len(made.lines) == LINES
    assert made.lines[0].startswith("BROKEN: ")
    picture = shown.file.read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert b"kvproof\0" + made.digest.encode() in picture, f"{shown.file.name} is old: {AGAIN}"
    assert len(picture) <= KIB_MAX * 1024


def test_each_seed_story_is_shown() -> None:
    faults = {shown.name for shown in SHOWN if not shown.finding}
    assert faults <= {*FAULTS}
    assert all(faults & {*story.faults} for story in STORIES.values())
    assert {shown.name for shown in SHOWN if shown.finding} <= {*KNOWN}


def test_each_text_has_two_sentences() -> None:
    for shown in SHOWN:
        assert shown.about.count(". ") == 1, shown.name
        assert shown.about.endswith(".")


def test_a_picture_of_the_gallery_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for shown in SHOWN:
        assert f"img/{shown.file.name}" in text
        assert shown.file.parent == PICTURES
