"""Tables, and the blocks of a page that are made from the code.

A block begins with the line `<!-- made: NAME -->` and ends with the line `<!-- end -->`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page, with what is made now in each of its blocks. Raises ValueError where the
    page has other blocks, or has one twice."""
    named = [name for _, name, _ in BLOCK.findall(text)]
    if sorted(named) != sorted(blocks):
        raise ValueError(f"the page has the blocks {named}, not {sorted(blocks)}")
    return BLOCK.sub(lambda found: found[1] + blocks[found[2]]() + "\n" + found[3], text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    rule = "---".join("|" * (len(head) + 1))
    return "\n".join([_row(head), rule, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def code(*names: str) -> str:
    """Names in code, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def paragraphs(text: str) -> str:
    """The text of a docstring, one line for each paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))
