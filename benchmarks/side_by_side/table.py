"""The tables that are printed."""

from collections.abc import Mapping
from itertools import pairwise

from measure import Run

BASE = "SPIN"
HEAD = ("tool", "states", "states/s", "search s", "process s", "MiB", f"to {BASE}")


def table(size: str, runs: Mapping[str, Run], compiling: float | None) -> str:
    """The table of one size: a row for each tool. The ratio is how many times as fast as the base
    the tool is, in seconds of search."""
    base = runs.get(BASE)
    lines = [
        f"{size}: {max(run.states for run in runs.values()):.0f} distinct states",
        _line(*HEAD),
    ]
    for tool, run in runs.items():
        # A search of less than 10 ms is 0 by SPIN's own clock.
        seconds = max(run.search_seconds, 0.01)
        ratio = f"{max(base.search_seconds, 0.01) / seconds:.2f}" if base else "-"
        speed = f"{run.states / seconds:.0f}"
        times = f"{seconds:.2f}", f"{run.process_seconds:.2f}"
        lines.append(_line(tool, f"{run.states:.0f}", speed, *times, f"{run.peak_mib:.0f}", ratio))
    if compiling is not None:
        lines.append(f"{BASE} was compiled in {compiling:.1f} s, which its times do not include.")
    return "\n".join(lines) + "\n"


def growth(medians: Mapping[str, Mapping[str, Run]]) -> str:
    """The growth factors of each tool from one size to the next."""
    lines = []
    for (small, less), (large, more) in pairwise(medians.items()):
        lines.append(f"{small} to {large}: times as many")
        lines.append(_line("tool", "states", "", "search s", "process s", "MiB", ""))
        for tool in less:
            parts = [
                f"{b / a:.1f}" if a else "-" for a, b in zip(less[tool], more[tool], strict=True)
            ]
            lines.append(_line(tool, parts[0], "", *parts[1:], ""))
        lines.append("")
    return "\n".join(lines)


def _line(tool: str, *parts: str) -> str:
    return (f"{tool:16}" + "".join(f"{part:>11}" for part in parts)).rstrip()
