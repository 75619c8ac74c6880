"""States per second of SPIN, on a model of its own: the counts of a transfer from P to D.

It needs `spin` and `gcc`. A state of this model is 28 bytes of counts; one of the explorer has
block tables, caches, queues and transfers, so the two speeds say what a state costs, and no more.
"""

import re
import subprocess
import tempfile
from pathlib import Path

MODEL = Path(__file__).parent / "kv_transfer.pml"

SIZES = {"prompt": 64, "chunk": 32, "output": 8, "block_size": 2, "p_blocks": 64, "d_blocks": 70}
"""Tokens and blocks: 407,032 states, which take less than a second."""

COMPILER = ("gcc", "-O3", "-DSAFETY", "-DNOREDUCE", "-DNOFAIR", "-DNOBOUNDCHECK", "-o", "pan")
"""No partial order reduction, so that all states are visited; no search for cycles."""

VERIFIER = ("./pan", "-E", "-w22", "-m500000")
"""A deadlock is no error; a hash table of four million places; no run is deeper than this."""


def states_per_second() -> tuple[int, float]:
    """The number of states, and of those visited in a second of wall time. Raises RuntimeError
    where SPIN is not installed or does not end."""
    given = [f"-D{name.upper()}={value}" for name, value in SIZES.items()]
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, "spin", *given, "-a", str(MODEL))
        _run(folder, *COMPILER, "pan.c")
        output = _run(folder, *VERIFIER)
    states = re.search(r"(\d+) states, stored", output)
    seconds = re.search(r"elapsed time ([\d.e+-]+) seconds", output)
    if not (states and seconds and "errors: 0" in output) or "too small" in output:
        raise RuntimeError(f"SPIN did not end its search. Read its output:\n{output}")
    return int(states[1]), int(states[1]) / max(float(seconds[1]), 0.01)


def _run(folder: str, *command: str) -> str:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"{command[0]} fails ({error}). Install spin and gcc.") from None
    return ran.stdout
