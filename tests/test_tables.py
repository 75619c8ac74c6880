"""Tables fit the terminal, or become a block for each row."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.reports import screen
from kvproof.reports.tables import TextTable

CELL = st.lists(st.text("ab漢[", min_size=1, max_size=9), max_size=5).map(" ".join)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=6), st.integers(8, 90))
def test_a_table_shows_every_word_whole_and_in_its_row(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    table = TextTable(("one", "two of it", "three"), tuple(rows))
    head, *bodies = table.row_lines(width)
    for row, body in zip(rows, bodies, strict=True):
        words = " ".join(body).split()
        for cell in row:
            assert all(word in words for word in cell.split())
    lines = [*head, *(line for body in bodies for line in body)]
    wide = [line for line in lines if screen.cells(line) > width]
    # Only a word that is alone in its line may be wider than the page.
    assert all(len(line.split()) == 1 for line in wide)
    assert bool(head) == (table.widths(width) is not None)
