"""The heat map as a picture, SVG or PNG. Needs matplotlib, an optional dependency. The file is
deterministic."""

import io
from collections.abc import Sequence

from matplotlib import style
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from kvproof.reports.heat_map import HeatMapRow, SurveyedRelease, invariant_rows, story_rows
from kvproof.reports.heat_table import MARKS
from kvproof.strategies.verdict import Verdict

COLOURS = {Verdict.SAMPLED: "#7fbf7b", Verdict.UNKNOWN: "#d9d9d9", Verdict.VIOLATED: "#f4665c"}
"""Green only means that the check was run and held."""

STYLE = ["default", {"svg.hashsalt": "kvproof", "svg.fonttype": "none"}]
CELL_WIDE, CELL_TALL = 0.62, 0.26
"""The size of a cell, in inches."""


def picture(releases: Sequence[SurveyedRelease], suffix: str) -> bytes:
    """The picture in the format of this suffix (.svg or .png)."""
    rows: list[HeatMapRow] = [*story_rows(releases), *invariant_rows(releases)]
    order = list(COLOURS)
    with style.context(STYLE):
        size = (3.2 + CELL_WIDE * len(releases), 1.0 + CELL_TALL * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        colours = ListedColormap([COLOURS[verdict] for verdict in order])
        grid = [[order.index(cell.verdict) for cell in row.cells] for row in rows]
        axes.imshow(grid, cmap=colours, vmin=-0.5, vmax=len(order) - 0.5, aspect="auto")
        axes.set_xticks(range(len(releases)), [r.version for r in releases], fontsize=8)
        axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
        axes.xaxis.tick_top()
        for y, row in enumerate(rows):
            for x, cell in enumerate(row.cells):
                axes.text(x, y, MARKS[cell.verdict], ha="center", va="center", fontsize=7)
        axes.axhline(len(rows) - len(invariant_rows(releases)) - 0.5, color="black", linewidth=1)
        axes.set_title("Seed stories and invariants over releases of vLLM", fontsize=10)
        file = io.BytesIO()
        metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(file, format=suffix.removeprefix("."), dpi=120, metadata=metadata)
    return file.getvalue()
