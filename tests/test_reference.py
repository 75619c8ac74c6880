"""The pages of docs/reference/ show what the code has.

`pytest tests/test_reference.py --rewrite` makes the blocks of all pages anew.
"""

import re
from pathlib import Path
from typing import get_args

import pytest

from kvproof.cli import streams
from kvproof.reports.output.base import ExitCode
from tests.conftest import CAREFUL, rewritten
from tests.reference import BLOCKS
from tests.reference.markdown import table, with_blocks

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
BY_HAND = {"catalogue.md"}
"""Pages without a block."""


@pytest.mark.parametrize("name", BLOCKS)
def test_a_page_is_what_the_code_makes(name: str, pytestconfig: pytest.Config) -> None:
    path = FOLDER / name
    text = path.read_text(encoding="utf-8")
    made = with_blocks(text, BLOCKS[name])
    if pytestconfig.getoption("--rewrite") and made != text:
        path.write_text(made, encoding="utf-8")
        pytestconfig.stash[rewritten].append(name)
        return
    assert made == text, (
        f"{name} differs: if that is right run pytest tests/test_reference.py --rewrite, {CAREFUL}"
    )


def test_every_page_is_known() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*BLOCKS, *BY_HAND}


def test_every_exit_code_is_in_the_page_of_verdicts() -> None:
    page = (FOLDER / "verdicts.md").read_text(encoding="utf-8")
    [meta] = get_args(ExitCode)[1:]
    known = {*meta.extra_json_schema["enum"], streams.EXIT_CODE, streams.READER_GONE}
    rows = re.findall(r"^\| ([\d, ]+) \|", page.split("## Exit codes")[1], re.MULTILINE)
    assert {int(code) for row in rows for code in row.split(",")} == known


def test_a_page_that_differs_is_found() -> None:
    """The test of the test."""
    page = "# One\n<!-- made: one -->\nold\n<!-- end -->\nby hand\n"
    made = with_blocks(page, {"one": lambda: "new"})
    assert made == "# One\n<!-- made: one -->\nnew\n<!-- end -->\nby hand\n"
    for wrong in ("# One\n", page + page):
        with pytest.raises(ValueError, match="the page has the blocks"):
            with_blocks(wrong, {"one": lambda: "new"})


def test_a_cell_of_a_table_is_one_line() -> None:
    assert (
        table(("a", "b"), [("x|y", "two\nlines")]) == "| a | b |\n|---|---|\n| x\\|y | two lines |"
    )
