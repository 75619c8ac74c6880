"""Mistakes planted in vLLM: which does the sanitizer find on a real engine, which show without it.

    PYTHONPATH=. python benchmarks/sanitizer/planted.py [--only MISTAKE ...] [--write]

Each mistake changes one line of a function of vLLM. An engine with tiny random weights then serves
an ordinary workload twice: with `KVPROOF=raise`, and without kvproof. `--write` keeps the table in
reports/planted_mistakes.md. Exit code: 0 all ran, 2 bad usage.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.engine.mistakes import MISTAKES
from tests.engine.planted import Row, rows

REPORT = Path(__file__).parent.parent.parent / "reports" / "planted_mistakes.md"

HEAD = """\
# Mistakes planted in vLLM

Made by `benchmarks/sanitizer/planted.py`. Each mistake changes one line of vLLM 0.32.0. A real
engine with tiny random weights and a pool that preempts serves 60 requests, which share prefixes,
are sent again and are aborted. *Found by* is the first invariant that did not hold under
`KVPROOF=raise`. It ended the engine after so many seconds since the first request; where it costs
a user less than a leak it is printed, and the engine goes on. *Without kvproof* is what shows when
nothing watches: answers are compared with those of vLLM as it was released.

| mistake | engine | found by | named rightly | seconds | without kvproof |
|---|---|---|---|---|---|
"""


def line(row: Row) -> str:
    """A row of the table."""
    if row.found is not None:
        found, right = f"`{row.found}`", "yes" if row.named_rightly else "no"
    else:
        found, right = f"not found{_why(row)}", ""
    seconds = f"{row.seconds:.1f}" if row.ended else "printed" if row.found else ""
    engine = MISTAKES[row.mistake].engine
    return f"| `{row.mistake}` | {engine} | {found} | {right} | {seconds} | {row.alone} |"


def _why(row: Row) -> str:
    return f" ({row.error[:70].splitlines()[0]})" if row.error else ""


def counts(done: list[Row]) -> Iterator[str]:
    """How many were found, and how many showed by themselves."""
    found = [row for row in done if row.found]
    yield (
        f"{len(found)} of {len(done)} mistakes were found, {sum(r.named_rightly for r in found)} "
        "of them under a name that fits."
    )
    crash, hang, wrong, nothing = (
        sum(row.alone.startswith(how) for row in done)
        for how in ("crash", "hang", "wrong tokens", "nothing seen")
    )
    yield (
        f"Without kvproof {crash} crashed the engine, {hang} hung, {wrong} gave wrong tokens and "
        f"no error, and of {nothing} nothing was seen."
    )


def report(done: list[Row]) -> str:
    """The table, and how many were found."""
    table = "".join(f"{line(row)}\n" for row in done)
    return f"{HEAD}{table}\n" + "\n".join(counts(done)) + "\n"


def main() -> None:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(MISTAKES), choices=list(MISTAKES))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    print(HEAD, end="")
    done: list[Row] = []
    with tempfile.TemporaryDirectory() as models:
        for row in rows(Path(models), args.only):
            done.append(row)
            print(line(row), flush=True)
            if args.write:
                REPORT.write_text(report(done), encoding="utf-8")
    print("", *counts(done), sep="\n")


if __name__ == "__main__":
    main()
