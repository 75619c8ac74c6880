"""The model of kv_transfer.py in SPIN: compiles kv_transfer.pml for given sizes, and runs it."""

import re
import shutil
import time
from pathlib import Path

from kv_transfer import Sizes
from measure import Failed, Run, measured

MODEL = Path(__file__).parent / "kv_transfer.pml"
COMPILER = ("gcc", "-O3", "-march=native")
MACROS = ("-DSAFETY", "-DNOREDUCE", "-DNOFAIR", "-DNOBOUNDCHECK", "-DMEMLIM=8000")
"""Compiler options: no partial order reduction, so that all states are visited; no search for
cycles; no checks of array bounds; memory limit off. The search is depth first, SPIN's fastest."""
OPTIONS = ("-E", "-w22")
"""Options of the verifier: a deadlock is not an error; the hash table has 4 million slots."""


def installed() -> bool:
    """Whether SPIN and a C compiler are installed."""
    return bool(shutil.which("spin") and shutil.which("gcc"))


def compiled(sizes: Sizes, folder: Path) -> float:
    """Compile the verifier `pan` in a folder. Returns the time in seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    given = [f"-D{name.upper()}={value}" for name, value in sizes._asdict().items()]
    began = time.perf_counter()
    measured(["spin", *given, "-a", MODEL], folder)
    measured([*COMPILER, *MACROS, "-o", "pan", "pan.c"], folder)
    return time.perf_counter() - began


def run(sizes: Sizes, folder: Path) -> Run:
    """Run the verifier of a folder to the end of the search; its depth limit grows with the prompt.
    Raises `Failed` if the limit is too small."""
    process = measured(["./pan", *OPTIONS, f"-m{25 * sizes.prompt**2}"], folder)
    states = re.search(r"(\d+) states, stored", process.output)
    seconds = re.search(r"elapsed time ([\d.e+-]+) seconds", process.output)
    complete = "errors: 0" in process.output and "too small" not in process.output
    if not (states and seconds and complete) or "Warning: Search not completed" in process.output:
        raise Failed(f"SPIN did not finish without an error:\n{process.output}")
    return Run(int(states[1]), float(seconds[1]), process.seconds, process.peak_mib)
