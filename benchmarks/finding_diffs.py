"""What the diffs of the findings' pages do: the gate, and vLLM's own tests, with each.

    PYTHONPATH=. python benchmarks/finding_diffs.py --tests FOLDER [--only NAME ...] [--budget S]
    PYTHONPATH=. python benchmarks/finding_diffs.py --write

Each diff is applied to a copy of the imported vLLM 0.32.0, which is head; base is the release. The
FOLDER has the folder `tests` of vLLM's sources, and nothing else of them. A test counts if it
passes on base; the first run finds these. PYTEST_ADDOPTS has options for them. Results are kept in
findings/gates.json as they come: a diff that was run is not run again unless it has changed, or
its gate was UNKNOWN. `--write` writes the sentences of the pages anew, and runs nothing. Exit
code: 0 all were run, 2 bad usage.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from benchmarks import kept
from tests.finding_diffs import diff_of, files_of, offered, overlay, sources
from tests.finding_gates import digest, known, rewritten, save
from tests.findings import ISSUES

BUDGET_S = 300
UNKNOWN = {"verdict": "UNKNOWN"}
UNIT = "tests/v1/kv_connector/unit"

OF_SCHEDULERS = ("remote", "recovery", "invalid_blocks", "bidirectional", "propagation", "decode")
OF_NIXL = ("nixl", "remote", "bidirectional", "recovery")
"""Words in the names of the tests of connectors that belong to the scheduler, and to NIXL."""

NOT_RUN = ("test_priority_scheduler_random", "test_kv_cache_utils", "simple_cpu", "_e2e")
"""Words in the names of tests that take minutes, or whose code no diff reaches."""

COMMON = ("core", "engine", "worker")
"""Folders of `vllm/v1` whose code the tests of the scheduler and the connectors reach as well."""

ROOMS = (
    *("model", "invariants", "strategies", "live", "reports", "cli"),
    *("gate", "proofs", "watch"),
)
KVPROOF = ["git", "log", "-1", "--format=%h", "--", *ROOMS]
"""Prints the last commit that changes kvproof, as what was gated."""


def test_files(name: str, folder: Path) -> tuple[list[str], list[str]]:
    """The folders of vLLM's tests that belong to the files of a diff, and their files."""
    rooms = {Path("tests", *Path(file).parts[1:-1]) for file in files_of(diff_of(name))}
    own = [room for room in rooms if room.parts[1:2] == ("v1",) and room.name not in COMMON]
    if own := sorted(str(room) for room in own if (folder / room).is_dir()):
        files = (file for room in own for file in sorted((folder / room).glob("test_*.py")))
        return own, [str(file) for file in files]
    core = any(file.startswith("vllm/v1/") for file in files_of(diff_of(name)))
    words = OF_SCHEDULERS if core else OF_NIXL
    files = sorted((folder / UNIT).glob("test_*.py"))
    chosen = [file for file in files if any(word in file.name for word in words)]
    if core:
        chosen = [*sorted((folder / "tests/v1/core").rglob("test_*.py")), *chosen]
    kept = [file for file in chosen if not any(word in file.name for word in NOT_RUN)]
    return ["tests/v1/core", UNIT] if core else [UNIT], [str(file) for file in kept]


def environment(tree: Path | None) -> dict[str, str]:
    """The environment of a program that imports this vLLM."""
    paths = [str(tree)] if tree else []
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}


def passed(files: list[str], folder: Path, tree: Path | None) -> set[str]:
    """The tests that pass on a vLLM."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["--continue-on-collection-errors"]
        command += [f"--rootdir={folder}", f"--junitxml={out}", *files]
        ran = subprocess.run(
            command, cwd=work, env=environment(tree), capture_output=True, text=True, check=False
        )
        if not out.exists():
            sys.exit(ran.stdout[-2000:] + ran.stderr[-2000:])
        cases = ElementTree.parse(out).getroot().iter("testcase")
        found = {
            f"{case.get('classname')}::{case.get('name')}"
            for case in cases
            if not any(case.find(end) is not None for end in ("failure", "error", "skipped"))
        }
        if tree is None and not found:
            sys.exit(f"no test passes on base: {ran.stdout[-2000:]}")
        return found


def gate(tree: Path, args: argparse.Namespace, traces: Path) -> dict[str, Any]:
    """The gate of a diff, and what it was run with."""
    kvproof = subprocess.check_output(KVPROOF, text=True).strip()
    options = ["--vllm", tree, "--base", sources(), "--budget", args.budget, "--seed", 0]
    answer = kept.gate(*options, traces=traces)
    findings = answer.get("findings", [])
    of = {kind: [f for f in findings if f["kind"] == kind] for kind in ("introduced", "mended")}
    return {
        "exit_code": answer["exit_code"],
        "verdict": answer["verdict"],
        "reason": answer.get("reason", ""),
        "introduced": sorted({f["invariant"] for f in of["introduced"]}),
        "sentences": [f["sentence"] for f in of["introduced"]],
        "mended": sorted({f["known"] or f["invariant"] for f in of["mended"]}),
        "changed": answer["changed_functions"],
        "reached": answer["reached"],
        **answer["ran"],
        "budget_s": args.budget,
        "seconds": answer["seconds"],
        "kvproof": kvproof,
    }


def run(name: str, args: argparse.Namespace, base: dict[str, set[str]]) -> dict[str, Any]:
    """What a diff does, as far as it is not known."""
    entry = known().get(name, {})
    if entry.get("diff") != digest(name):
        entry = {"diff": digest(name)}
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "patched"
        overlay(diff_of(name), tree)
        if args.tests and "tests" not in entry:
            of, files = test_files(name, args.tests)
            key = " ".join(of)
            if key not in base:
                base[key] = passed(files, args.tests, None)
            got = passed(files, args.tests, tree)
            broken = sorted(base[key] - got)
            entry["tests"] = {"of": of, "passed": len(base[key] & got), "broken": broken}
        if entry.get("gate", UNKNOWN)["verdict"] == "UNKNOWN" and not args.no_gate:
            entry["gate"] = gate(tree, args, Path(work) / "traces")
    return entry


def main() -> int:
    """Run what is missing, or write the sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=Path, help="the folder that has vLLM's folder tests")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="of each gate, in seconds")
    parser.add_argument("--no-gate", action="store_true", help="run vLLM's own tests only")
    parser.add_argument("--write", action="store_true", help="write the sentences of the pages")
    args = parser.parse_args()
    names = [path.parent.name for path in ISSUES if offered(path.parent.name)]
    if wrong := set(args.only) - set(names):
        parser.error(f"no page with a diff: {', '.join(sorted(wrong))}")
    base: dict[str, set[str]] = {}
    for name in [] if args.write else args.only or names:
        begin = time.monotonic()
        entry = run(name, args, base)
        save(known() | {name: entry})
        found = entry.get("gate", {}).get("introduced"), entry.get("tests", {}).get("broken")
        print(f"{name:40} {time.monotonic() - begin:6.0f} s  {found}", flush=True)
    for path in ISSUES:
        text = path.read_text(encoding="utf-8")
        if offered(path.parent.name) and rewritten(path.parent.name, text) != text:
            path.write_text(rewritten(path.parent.name, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
