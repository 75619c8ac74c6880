"""The pictures of the gallery are of the traces that the page shows. `test_pages.py` runs it."""

import pytest

from kvproof.reports.stories import STORIES
from tests.gallery import Picture, ledger, pictures

KIB_MAX = 150


@pytest.mark.parametrize("picture", pictures(), ids=lambda each: each.file.stem)
def test_a_picture_is_of_this_trace(picture: Picture) -> None:
    kept = picture.file.read_bytes()
    assert kept.startswith(b"\x89PNG")
    again = f"{picture.file.name} is old: run python -m tests.gallery, and look at the pictures"
    assert b"kvproof\0" + ledger(picture.command).digest.encode() in kept, again
    assert len(kept) <= KIB_MAX * 1024


def test_each_seed_story_is_shown() -> None:
    shown = {picture.command[-1] for picture in pictures()}
    assert all(shown & {*story.faults} for story in STORIES.values())
    assert len(pictures()) == 10
