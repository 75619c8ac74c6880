"""Mistakes planted in live vLLM for pairs of features: which does the default search find?

    PYTHONPATH=. python benchmarks/pairs.py > reports/planted_pairs.md

Each mistake has a process, with the episodes of `kvproof sample --machine live` without options,
until one breaks a check. Seconds are of processor time, without the import of vLLM.
"""

import argparse
import json
import subprocess
import sys
import time
from typing import NoReturn

import pytest

from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.wide import random_clusters, sample_many
from tests.mistakes_of_pairs import MISTAKES

LIMIT_S = 120
SEED = 0

HEAD = """\
# Mistakes planted for pairs of features

Made by `benchmarks/pairs.py`. Each mistake of `tests/mistakes_of_pairs.py` changes vLLM only where
both features of a pair are used, pairs that kvproof refused before. *Found by* is the first check
that did not hold in the episodes of `kvproof sample --machine live` without options, and *seconds*
the processor time until then, without the import of vLLM.

| mistake | pair | found by | seconds |
|---|---|---|---|
"""


class Found(BaseException):
    """The first violation. No search goes on after it."""


def one(name: str) -> tuple[str, float]:
    """What finds a mistake, in this process, and after how many seconds."""
    from tests.watching import watched

    MISTAKES[name].patch(pytest.MonkeyPatch())
    began = time.process_time()

    def found(violated: Violated) -> NoReturn:
        raise Found(violated.finding.invariant)

    check = ""
    try:
        sample_many(
            random_clusters(SEED, live=True),
            watched,
            seed=SEED,
            failed=found,
        )
    except Found as first:
        check = str(first)
    return check, time.process_time() - began


def main() -> None:
    """Run a process for each mistake, one after the other, and print the page."""
    parser = argparse.ArgumentParser(description=HEAD.splitlines()[0].lstrip("# "))
    parser.add_argument(
        "mistake", nargs="?", choices=MISTAKES, metavar="MISTAKE", help="this one, as JSON"
    )
    name = parser.parse_args().mistake
    if name:
        print(json.dumps(one(name)))
        return
    print(HEAD, end="")
    quick = 0
    for name, mistake in MISTAKES.items():
        command = [sys.executable, __file__, name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        check, seconds = json.loads(done.stdout.splitlines()[-1])
        quick += bool(check) and seconds <= LIMIT_S
        what = f"`{check}`" if check else "not found"
        print(f"| `{name}` | {', '.join(mistake.features)} | {what} | {seconds:.0f} |", flush=True)
    print(f"\n{quick} of {len(MISTAKES)} were found within {LIMIT_S} s.")


if __name__ == "__main__":
    main()
