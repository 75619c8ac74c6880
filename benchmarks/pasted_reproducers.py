"""Paste reproducers of findings/ into vLLM's own tests, and run them there.

    PYTHONPATH=. python benchmarks/pasted_reproducers.py --tests FOLDER [--seed N] [--count N]

The FOLDER has the folder `tests` of vLLM's sources, and nothing else of them. The seed chooses
among the reproducers that need no helper but those that vLLM has. Each is put into `tests/v1/core`
with its import changed, run on the imported vLLM 0.32.0, and removed. There it must fail for its
stated reason. PYTEST_ADDOPTS has options for vLLM's tests, such as a plugin that has their models.
Exit code: 0 all fail so, 1 one does not, 2 bad usage.
"""

import argparse
import random
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.finding_diffs import environment
from tests.findings import FOLDER
from tests.test_reproducers import reason_of

OURS, THEIRS = "findings.helpers.utils", "tests.v1.kv_connector.unit.utils"
HELPERS = re.compile(r"^from (findings\.helpers\.\w+) import", re.MULTILINE)


def pasteable() -> list[Path]:
    """Return the reproducers that import no helper but those that vLLM has."""
    paths = sorted(FOLDER.glob("*/test_*.py"))
    return [p for p in paths if set(HELPERS.findall(p.read_text(encoding="utf-8"))) == {OURS}]


def output_of(path: Path, folder: Path) -> str:
    """Run a reproducer among vLLM's tests. Returns what pytest prints."""
    pasted = folder / "tests/v1/core" / path.name
    pasted.write_text(path.read_text(encoding="utf-8").replace(OURS, THEIRS), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    try:
        ran = subprocess.run(
            [*command, f"--rootdir={folder}", str(pasted)],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        pasted.unlink()
    return ran.stdout + ran.stderr


def main() -> int:
    """Paste the reproducers that the seed chooses, and print what each does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=Path, required=True, help="what has vLLM's folder tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=3)
    args = parser.parse_args()
    if not (args.tests / "tests/v1/core").is_dir():
        parser.error(f"{args.tests} has no tests/v1/core. Use the folder of vLLM's sources.")
    paths, wrong = pasteable(), 0
    for path in random.Random(args.seed).sample(paths, min(args.count, len(paths))):
        told = output_of(path, args.tests)
        fails = reason_of(path) in told and " failed" in told
        wrong += not fails
        print(f"{path.parent.name:40} {'fails as it says' if fails else told[-2000:]}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
