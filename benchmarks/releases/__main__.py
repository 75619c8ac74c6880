"""The heat map of releases of vLLM: which of them break which invariants, and have which faults.

    python -m benchmarks.releases [--releases X.Y.Z ...] [--episodes N] [--out reports]

surveys releases, each in its own process, and writes `releases.md` and `releases.json`. Releases
that are missing in the cache folder are installed there with pip. Surveys are kept there too, so
that a run that was stopped continues. The exit code is 3 where some cell is unknown.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.releases import table
from benchmarks.releases.rows import (
    SurveyedRelease,
    as_data,
    fault_rows,
    invariant_rows,
    story_rows,
    undriven,
    unexplained,
)
from benchmarks.releases.surveys import Surveys
from kvproof.cli.on_releases import ask_each, in_order
from kvproof.live.releases import NEWEST, cache_folder
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.writing import replace
from kvproof.strategies.verdict import Verdict

NOT_SURVEYED = "not surveyed: interrupted before"


def data(releases: Sequence[SurveyedRelease], seed: int, episodes: int) -> dict[str, Any]:
    """The heat map as plain data."""
    versions = [release.version for release in releases]
    verdict = Verdict.UNKNOWN if table.unknown(releases) else Verdict.SAMPLED
    return {
        "exit_code": verdict.exit_code,
        "verdict": verdict.value,
        "seed": seed,
        "episodes": episodes,
        "releases": versions,
        "invariants": as_data(invariant_rows(releases), versions),
        "stories": as_data(story_rows(releases), versions),
        "faults": as_data(fault_rows(releases, FAULTS), versions),
        "unexplained": unexplained(releases),
        "not_driven": undriven(releases),
    }


def survey(
    versions: Sequence[str], surveys: Surveys, seed: int, episodes: int
) -> list[SurveyedRelease]:
    """The surveys of these releases, two at a time."""
    found = ask_each(
        versions,
        lambda version: surveys.survey(version, seed, episodes),
        lambda release: release.reason or f"{len(release.records)} records",
    )
    return [found.get(each) or SurveyedRelease(each, reason=NOT_SURVEYED) for each in versions]


def main(argv: Sequence[str] | None = None) -> int:
    """Survey the releases, and write the two files. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--releases", nargs="+", default=list(NEWEST), metavar="X.Y.Z")
    parser.add_argument("--episodes", type=int, default=10, help="of each cluster")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, default=Path("reports"))
    args = parser.parse_args(argv)
    try:
        versions = in_order(args.releases)
        surveys = Surveys(cache_folder(args.cache))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    began = time.monotonic()
    releases = survey(versions, surveys, args.seed, args.episodes)
    made = data(releases, args.seed, args.episodes)
    replace(args.out / "releases.md", "\n".join([*table.lines(releases), ""]).encode())
    replace(args.out / "releases.json", json.dumps(made, indent=2).encode() + b"\n")
    print(f"{made['verdict']}: {len(releases)} releases after {time.monotonic() - began:.0f} s")
    return int(made["exit_code"])


if __name__ == "__main__":
    raise SystemExit(main())
