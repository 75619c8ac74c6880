"""A small checkpoint takes little memory, whatever lengths it says."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.strategies.explorer import checkpoint
from tests.sentences import two_sentences
from tests.test_checkpoint_files import sealed

MEMORY_MAX_MIB = 300

ADDRESSES_MAX_MIB = 2000
"""Most of it is what imports map and never touch."""

HUGE = b"\xff\xff\xff\xff"
BEGIN = b"\x81\xa5graph\x81\xaacomponents\x81\xa7engines"

SPARSE_BYTES = 600 << 20
SPARSE = checkpoint.HEAD.pack(checkpoint.MAGIC, checkpoint.VERSION, SPARSE_BYTES)
"""The head of a file that is nothing but a hole."""


MEASURE = f"""
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESSES_MAX_MIB << 20},) * 2)
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A program that runs another one, and prints its exit code and its peak memory in KiB."""


@pytest.mark.parametrize(
    "content",
    [
        SPARSE,
        b"\x93ABCDEF",
        sealed(b"\xdd" + HUGE),  # an array of four billion items
        sealed(b"\xdf" + HUGE),
        sealed(b"\xc6" + HUGE),
        sealed(b"\x91" * 100_000),
        sealed(BEGIN + b"\xdd" + HUGE),
        # Engines without anything, as dense as they can be.
        sealed(BEGIN + b"\xdd\x00\x01\x00\x00" + b"\x93\xa0\x90\x90" * 65536),
    ],
    ids=["sparse", "old", "array", "map", "bytes", "deep", "engines", "dense"],
)
def test_a_length_is_not_believed(content: bytes, tmp_path: Path) -> None:
    with (tmp_path / "c").open("wb") as file:
        file.write(content)
        if content.startswith(SPARSE):
            file.truncate(len(SPARSE) + checkpoint.CHECKSUM_BYTES + SPARSE_BYTES)
    command = [sys.executable, "-m", "kvproof", "explore", "--config", "pd-failing"]
    command += ["--checkpoint", str(tmp_path / "c"), "--resume"]
    # The peak of a process counts from its fork, and that of a test may be large.
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, cwd=tmp_path
    )
    said = " ".join(measured.stderr.split())
    code, peak_kib = map(int, measured.stdout.split())
    assert (code, two_sentences(said)) == (2, True), said
    assert peak_kib >> 10 < MEMORY_MAX_MIB
