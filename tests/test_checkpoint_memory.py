"""A small checkpoint takes little memory, whatever lengths it says."""

import os
import resource
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


def limited() -> None:
    size = ADDRESSES_MAX_MIB << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


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
    with (tmp_path / "error").open("wb") as error:
        process = subprocess.Popen(
            command, stdout=error, stderr=error, preexec_fn=limited, cwd=tmp_path
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = " ".join((tmp_path / "error").read_text(encoding="utf-8").split())
    assert (process.returncode, two_sentences(said)) == (2, True), said
    assert used.ru_maxrss >> 10 < MEMORY_MAX_MIB
