"""The tables of `run.py`'s results, written into the page that has them.

python benchmarks/pull_requests/table.py FOLDER reports/pull_requests.md

What the page has from `HAND` on is written by hand, and stays.
With `--found gate/search/found.json` it also writes how many of every third of the defects of the
list, which the authors of the gate had, were found in each part of vLLM. The gate says so beside a
verdict that is not red. A defect that the folder does not have counts as not found.
"""

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from run import commits, name

Entry = dict[str, Any]

INTRODUCTION = """\
Made by `benchmarks/pull_requests/`, on two cores. Seconds are wall time; where other work had most
of the cores, the processor time stands beside them. *Caught* is red by a check that says what the
commit mends. *Not driven* is UNKNOWN: a changed statement that no run executes, or an operand of a
changed condition that was constant in all runs. *Told as a cost* is COSTS, exit code 0: no check is
broken, and what the commit mends is counted. *Missed* is another verdict that is not red. The last
column says why, as far as it is known. `a82f1b388f` was given as harmless: it lost the order
of reuse that vllm#51482 restored.
"""

WORDS = {
    "mends": "mended commit as base, its parent as head",
    "introduces": "parent as base, the commit as head; it brought a defect of its own",
    "harmless": "parent as base, the commit as head; nothing wrong is known of it",
}


def introduced(result: Entry) -> list[str]:
    """The ids of the checks that head breaks and base does not, the gravest first."""
    found = [f for f in result.get("findings", ()) if f["kind"] == "introduced"]
    also = [text.split(" after ")[0] for f in found for text in f["also"]]
    return list(dict.fromkeys([*(f["invariant"] for f in found), *also]))


def judgement(entry: Entry, result: Entry) -> str:
    """What the result is worth."""
    found = introduced(result)
    red = any(f["fails"] for f in result.get("findings", ()) if f["kind"] == "introduced")
    if entry["kind"] == "harmless":
        return "FALSE ALARM" if red else "unknown" if result["verdict"] == "UNKNOWN" else "green"
    if not red:
        return {"UNKNOWN": "not driven", "COSTS": "told as a cost"}.get(result["verdict"], "missed")
    return "caught" if set(found) & set(entry["right"]) else "red, for another reason"


def rows(folder: Path, kind: str) -> Iterator[tuple[Entry, Entry, str]]:
    """Each entry of a kind with its result, and what that is worth."""
    for entry in commits([]):
        path = folder / f"{name(entry)}.json"
        if entry["kind"] == kind and path.exists():
            result = json.loads(path.read_text(encoding="utf-8"))
            yield entry, result, judgement(entry, result)


def every_third(folder: Path) -> dict[str, list[int]]:
    """For each part of vLLM, how many of every third of the defects were found, and how many there
    are. A defect is in the part in which it has the most functions."""
    parts: dict[str, list[int]] = {}
    defects = [entry for entry in commits([]) if entry["kind"] != "harmless"]
    for entry in defects[2::3]:
        path = folder / f"{name(entry)}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found = Counter(f["part"] for f in result.get("functions", ()) if f["part"])
        found.pop("used by the accounting", None)
        [(part, _), *_] = found.most_common(1) or [("not run", 0)]
        count = parts.setdefault(part, [0, 0])
        count[0] += bool(result) and judgement(entry, result) == "caught"
        count[1] += 1
    return parts


def _seconds(result: Entry) -> str:
    """Wall time, and the processor time where other work had most of the two processors."""
    wall, used = result["seconds"], result.get("processor_s", math.inf)
    return f"{wall:.0f}" + f" ({used:.0f} of a processor)" * (used < wall)


def section(folder: Path, kind: str) -> Iterator[str]:
    """The lines of one kind."""
    found = list(rows(folder, kind))
    yield f"## {WORDS[kind][0].upper()}{WORDS[kind][1:]}"
    yield ""
    columns = "pull request", "commit", "about", "result", "seen by", "seconds", "date", "why not"
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|---|"
    for entry, result, worth in found:
        seen = ", ".join(f"`{check}`" for check in introduced(result)[:3])
        why = "" if worth in ("caught", "green") else entry.get("why", "")
        yield (
            f"| {entry['pull_request']} | `{entry['commit']}` | {entry['about']} | {worth} "
            f"| {seen} | {_seconds(result)} | {result['date']} | {why} |"
        )
    seconds = [result["seconds"] for _, result, _ in found]
    if seconds:
        counts = ", ".join(
            f"{worth} {sum(w == worth for _, _, w in found)}"
            for worth in dict.fromkeys(w for _, _, w in found)
        )
        yield ""
        yield f"{counts}. Median {statistics.median(seconds):.0f} s, at most {max(seconds):.0f} s."
    yield ""


HAND = "## About these runs"


def main() -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what run.py has written")
    parser.add_argument("page", type=Path, help="the page, whose tables are made again")
    parser.add_argument("--found", type=Path, help="where to write what the gate finds")
    args = parser.parse_args()
    if args.found:
        measured = {"date": date.today().isoformat(), "parts": every_third(args.folder)}
        args.found.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    text = args.page.read_text(encoding="utf-8")
    lines = ["# The gate on real pull requests of vLLM", "", INTRODUCTION]
    lines += [line for kind in WORDS for line in section(args.folder, kind)]
    args.page.write_text("\n".join([*lines, text[text.index(HAND) :]]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
