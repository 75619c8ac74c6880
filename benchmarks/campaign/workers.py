"""Steps per second of a campaign with 1, 2 and 4 workers, and whether they found the same.

    python benchmarks/campaign/workers.py --units 300

On a busy machine wall time says little. So the CPU time of the first process is printed as well, as
a share of that of the workers: on N cores, N workers can be at most N / (1 + share) times as fast
as one.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = """
import resource, sys
from kvproof.cli.main import main
begin = resource.getrusage(resource.RUSAGE_SELF)
code = main(sys.argv[1:])
end = resource.getrusage(resource.RUSAGE_SELF)
workers = resource.getrusage(resource.RUSAGE_CHILDREN)
own = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
print(own, workers.ru_utime + workers.ru_stime, file=sys.stderr)
"""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", default="300")
    parser.add_argument("--workers", nargs="+", default=["1", "2", "4"])
    parser.add_argument("--machine", default="model")
    args = parser.parse_args()
    print("| workers | seconds | CPU of workers (s) | CPU of the first process | state |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for turn, count in enumerate(args.workers):
            out = Path(folder, str(turn))
            command = ["campaign", "--units", args.units, "--machine", args.machine]
            begin = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-c", RUN, *command, "--workers", count, "--out", str(out)],
                capture_output=True,
                text=True,
            )
            seconds = time.monotonic() - begin
            if not (out / "campaign.json").exists():
                sys.exit(done.stderr)
            own, workers = map(float, done.stderr.splitlines()[-1].split())
            state = hashlib.blake2b((out / "campaign.json").read_bytes(), digest_size=4).hexdigest()
            print(
                f"| {count} | {seconds:.1f} | {workers:.1f} | {own:.1f} s, {own / workers:.0%} | "
                f"`{state}` |",
                flush=True,
            )


if __name__ == "__main__":
    main()
