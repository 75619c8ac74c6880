"""Runs cases, and prints the failing ones with the command that repeats each.

`python -m tests.fuzz --cases 2000 --seed 0` runs them all. `--case 17` runs one and prints it.
Exit code 0 if all is well, 1 if a case fails, 3 after an interruption.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.fuzz import run_case
from tests.fuzz.case import Case
from tests.fuzz.cases import KINDS, case_of, kind_of
from tests.fuzz.judge import problems
from tests.fuzz.run_case import Ended

SHOWN = 300
"""Characters of a stream that are shown."""


class Failing(NamedTuple):
    """A case that did not end as it must."""

    number: int
    kind: str
    problems: list[str]


class Run(NamedTuple):
    """All that was run."""

    seed: int
    ends: Counter[tuple[str, int | None]]
    failing: list[Failing]
    memory_mib: list[float]
    slowest: list[tuple[float, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--kind", choices=[*KINDS], help="only cases of this kind of input")
    parser.add_argument("--case", type=int, help="run this case alone, keep its folder, print it")
    args = parser.parse_args(argv)
    run_case.load()
    if args.case is not None:
        return _one(args.seed, args.case)
    done = Run(args.seed, Counter(), [], [], [])
    begin, interrupted = time.monotonic(), False
    numbers = range(args.first, args.first + args.cases)
    try:
        for number in numbers:
            if args.kind in (None, kind_of(args.seed, number)):
                _judged(done, number)
            if number % 50 == 49:
                _progress(done, number + 1 - args.first, args.cases, begin)
    except KeyboardInterrupt:
        interrupted = True
    print("\n".join(_summary(done, time.monotonic() - begin)))
    return 1 if done.failing else 3 if interrupted else 0


def _judged(done: Run, number: int) -> None:
    """Run a case and judge it."""
    kind = kind_of(done.seed, number)
    case = case_of(done.seed, number)
    ended = run_case.run(case)
    found = problems(case, ended)
    done.ends[kind, ended.code] += 1
    done.memory_mib.append(ended.memory_mib)
    done.slowest[:] = sorted([*done.slowest, (ended.seconds, number)], reverse=True)[:5]
    if found:
        done.failing.append(Failing(number, kind, found))
        print(f"case {number} ({kind}): {found[0][:SHOWN]}", flush=True)


def _progress(done: Run, number: int, cases: int, begin: float) -> None:
    spent = time.monotonic() - begin
    text = f"{number} of {cases} cases, {len(done.failing)} failing, {spent:.0f} s"
    print(text, file=sys.stderr, flush=True)


def _one(seed: int, number: int) -> int:
    """Run one case, and print all of it."""
    case = case_of(seed, number)
    ended = run_case.run(case, keep=True)
    found = problems(case, ended)
    print(_described(case, ended))
    print("\n".join(found) or "as it must be")
    return 1 if found else 0


def _described(case: Case, ended: Ended) -> str:
    shown = {
        "argv": ascii(case.argv),
        "program": case.program,
        "environment": dict(case.environment),
        "streams": (case.stdout, case.stderr, case.encoding),
        "invalid": case.invalid,
        "folder": str(ended.kept),
        "exit code": ended.code,
        "seconds": round(ended.seconds, 2),
        "MiB": round(ended.memory_mib),
        "stdout": ended.stdout[-2000:].decode("utf-8", "replace"),
        "stderr": ended.stderr[-4000:].decode("utf-8", "replace"),
    }
    return "\n".join(
        f"{name}: {ascii(value) if name == 'argv' else value}" for name, value in shown.items()
    )


def _summary(done: Run, seconds: float) -> list[str]:
    """The lines after the run: the ends by kind, and each failing case."""
    codes = sorted({code for _, code in done.ends}, key=str)
    lines = [f"{'kind':14} " + " ".join(f"{_code(code):>6}" for code in codes)]
    for kind in KINDS:
        counts = " ".join(f"{done.ends[kind, code] or '':>6}" for code in codes)
        lines.append(f"{kind:14} {counts}")
    for number, kind, found in done.failing:
        lines.append(
            f"case {number} ({kind}); python -m tests.fuzz --seed {done.seed} --case {number}"
        )
        lines += [f"    {problem[:SHOWN]}" for problem in found]
    slow = ", ".join(f"{spent:.1f} s (case {number})" for spent, number in done.slowest[:3])
    lines.append(f"slowest: {slow}; most memory: {max(done.memory_mib, default=0):.0f} MiB")
    cases = done.ends.total()
    lines.append(f"{cases} cases, {len(done.failing)} failing ({seconds:.0f} s)")
    return lines


def _code(code: int | None) -> str:
    return "hangs" if code is None else str(code)


if __name__ == "__main__":
    sys.exit(main())
