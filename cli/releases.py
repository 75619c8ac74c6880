"""`kvproof releases`: the invariants on releases of vLLM.

Exit code 0 if every cell has a verdict (a heat map reports; BAD is a verdict), 3 if some are
unknown, 2 for bad usage or input. The surveys stay in the cache folder, so that a run that was
stopped continues.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path

from kvproof.cli import parser as options
from kvproof.cli.finish import finish
from kvproof.cli.release_surveys import SURVEYED, Surveys
from kvproof.live.releases import cache_folder
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding
from kvproof.model.traces.trace_reader import read
from kvproof.reports import heat_blocks, heat_table
from kvproof.reports.heat_map import (
    HeatMapRow,
    SurveyedRelease,
    fault_rows,
    first_bad_and_good,
    invariant_rows,
    output_rows,
    story_rows,
    trace_row,
    undriven,
    unexplained,
)
from kvproof.reports.output.releases import Releases, ReleasesOfTrace, TraceCell
from kvproof.reports.screen import HANG, cells, columns, folds, say
from kvproof.strategies.verdict import Verdict

_RELEASE = re.compile(r"\d+\.\d+\.\d+")

NOT_SURVEYED = "not surveyed: interrupted before"

AT_ONCE = 2
"""Number of surveys that run at the same time."""

CLEAN_S = 0.8
"""How long an interrupted survey may take to end, in seconds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--releases",
        nargs="+",
        default=list(SURVEYED),
        metavar="X.Y.Z",
        help="survey only these releases",
    )
    options.add_cache(parser)
    parser.add_argument(
        "--episodes",
        type=options.at_least_one,
        default=10,
        help="number of random episodes of each cluster",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="only replay this trace, and list the releases that show its finding",
    )


def run(args: argparse.Namespace) -> int:
    """Survey the releases, and print the heat map."""
    versions = _known(args.releases)
    surveys = Surveys(cache_folder(args.cache))
    if args.trace is not None:
        return _trace(args, surveys, versions)
    begin = time.monotonic()
    releases = _each(versions, lambda v: surveys.survey(v, args.seed, args.episodes))
    verdict = Verdict.UNKNOWN if heat_table.unknown(releases) else Verdict.SAMPLED
    seconds = round(time.monotonic() - begin, 1)

    def output(code: int) -> Releases:
        return Releases(
            exit_code=code,
            verdict=verdict.value,
            seed=args.seed,
            episodes=args.episodes,
            seconds=seconds,
            releases=tuple(versions),
            invariants=output_rows(invariant_rows(releases), versions),
            stories=output_rows(story_rows(releases), versions),
            faults=output_rows(fault_rows(releases, FAULTS), versions),
            unexplained=tuple(unexplained(releases)),
            not_driven=tuple(undriven(releases)),
        )

    def text() -> None:
        for line in _map(releases):
            say(line, hang=6 if line.startswith(" ") else HANG)
        if interruption.requested():
            kept = shown(surveys.folder)
            say(f"UNKNOWN: interrupted. Surveys that ended are in {kept}; use the same command.")

    return finish(args, verdict.exit_code, output, text)


def _map(releases: Sequence[SurveyedRelease]) -> list[str]:
    """The heat map: a table, which is also Markdown, or blocks where a terminal is too narrow."""
    table = list(heat_table.lines(releases))
    wide = max(cells(line) for line in table if line.startswith("|"))
    return list(heat_blocks.lines(releases)) if folds() and wide > columns() else table


def _known(names: Sequence[str]) -> list[str]:
    """The requested releases, oldest first."""
    for name in names:
        if not _RELEASE.fullmatch(name):
            raise UsageError(
                f"A release has three numbers, unlike {name!r}. Use --releases "
                f"{SURVEYED[-1]}, or others like it."
            )
    return sorted(set(names), key=lambda name: tuple(map(int, name.split("."))))


def _each(
    versions: Sequence[str], survey: Callable[[str], SurveyedRelease]
) -> list[SurveyedRelease]:
    """The surveys, two at a time. Each finished survey is reported on standard error."""
    begin = time.monotonic()
    found: dict[str, SurveyedRelease] = {}
    running: dict[Future[SurveyedRelease], str] = {}
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        with interruption.stoppable():
            for version in versions:
                running[pool.submit(survey, version)] = version
            for future in as_completed(running):
                release = future.result()
                found[release.version] = release
                ended = release.reason or f"{len(release.records)} records"
                spent = f"{time.monotonic() - begin:.0f} s"
                done = f"{len(found)} of {len(versions)}"
                say(f"{done} after {spent}: {release.version}, {ended}", file=sys.stderr)
    finally:
        pool.shutdown(wait=not interruption.requested(), cancel_futures=True)
    wait(running, CLEAN_S)  # after an interruption, for surveys that end and remove their files
    return [
        found.get(version) or SurveyedRelease(version, reason=NOT_SURVEYED) for version in versions
    ]


def _trace(args: argparse.Namespace, surveys: Surveys, versions: Sequence[str]) -> int:
    """Replay the trace on all releases: a history need not be monotone, and a release takes
    seconds."""
    trace = read(args.trace)
    if trace.finding is None:
        raise UsageError(f"{shown(args.trace)} has no finding. Use a trace with a finding.")
    row = trace_row(_each(versions, lambda v: surveys.follow(v, args.trace)), shown(args.trace))
    unsure = any(cell.verdict is Verdict.UNKNOWN for cell in row.cells)
    verdict = Verdict.UNKNOWN if unsure else Verdict.SAMPLED
    return finish(
        args,
        verdict.exit_code,
        lambda code: _trace_output(row, versions, verdict, code),
        lambda: _print_trace(row, versions, trace.finding),
    )


def _print_trace(row: HeatMapRow, versions: Sequence[str], finding: Finding | None) -> None:
    for version, cell in zip(versions, row.cells, strict=True):
        say(f"{version:8} {heat_table.MARKS[cell.verdict]:4} {cell.why}", hang=14)
    assert finding is not None
    say(f"{finding.invariant}: {row.history(versions)}")


def _trace_output(
    row: HeatMapRow, versions: Sequence[str], verdict: Verdict, code: int
) -> ReleasesOfTrace:
    bad, good = first_bad_and_good(row, versions)
    return ReleasesOfTrace(
        exit_code=code,
        verdict=verdict.value,
        trace=row.name,
        first_bad=bad,
        first_good=good,
        releases={
            version: TraceCell(verdict=cell.verdict.value, why=cell.why)
            for version, cell in zip(versions, row.cells, strict=True)
        },
    )
