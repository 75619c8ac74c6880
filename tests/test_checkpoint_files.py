"""A checkpoint with an error is refused, and runs no code; a violation in it is taken again."""

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from kvproof.invariants.registry import CHECKS as ASKED
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.running import Checkpoint
from tests.sentences import two_sentences

NAME = "pd-failing"
CLUSTER = CLUSTERS[NAME]
CHECKS = [*ASKED.values(), *conformance_checks()]
HEAD_BYTES = checkpoint.HEAD.size + checkpoint.CHECKSUM_BYTES

FLIPS, CUTS = 200, 50


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The checkpoint of a search that was cut at 200 states."""
    path = tmp_path_factory.mktemp("kept") / "c"
    explore(CLUSTER, states_max=200, kept=Checkpoint(path))
    return path.read_bytes()


def resumed_from(content: bytes, path: Path) -> Any:
    path.write_bytes(content)
    return explore(CLUSTER, kept=Checkpoint(path, resume=True))


def sealed(data: bytes) -> bytes:
    """Data with a head and the right checksum."""
    head = checkpoint.HEAD.pack(checkpoint.MAGIC, checkpoint.VERSION, len(data))
    return head + checkpoint._checksum(head, (data,)) + data


def refusal(content: bytes, path: Path) -> str:
    """The error of a checkpoint, which must be refused."""
    with pytest.raises(UsageError) as refused:
        resumed_from(content, path)
    assert two_sentences(str(refused.value)), str(refused.value)
    return str(refused.value)


def test_one_bit_makes_no_difference_or_is_refused(kept: bytes, tmp_path: Path) -> None:
    source = random.Random(13)
    for _ in range(FLIPS):
        broken = bytearray(kept)
        # Every second one in the head, where a bit says most.
        place = source.randrange(HEAD_BYTES if source.random() < 0.5 else len(kept))
        broken[place] ^= 1 << source.randrange(8)
        refusal(bytes(broken), tmp_path / "c")


def test_a_cut_checkpoint_is_refused(kept: bytes, tmp_path: Path) -> None:
    source = random.Random(13)
    for length in (0, 1, 7, HEAD_BYTES, *(source.randrange(len(kept)) for _ in range(CUTS))):
        refusal(kept[:length], tmp_path / "c")
    assert "another length" in refusal(kept + b"\0", tmp_path / "c")


def test_the_command_refuses_and_keeps_the_file(kept: bytes, run: Any) -> None:
    path = Path("c")
    path.write_bytes(kept[:-1])
    code, out, err = run("explore", "--config", NAME, "--checkpoint", "c", "--resume")
    assert (code, out, path.read_bytes()) == (2, "", kept[:-1])
    assert two_sentences(err)


class Mischief:
    """What a checkpoint must not be able to do."""

    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps(Mischief()), "was made by an older kvproof"),
        (pickle.dumps({"kind": "kvproof-checkpoint"}), "was made by an older kvproof"),
        (b"\x93ABCDEF", "is not a checkpoint"),
        (b"[1,2,3]", "is not a checkpoint"),
        (
            checkpoint.HEAD.pack(checkpoint.MAGIC, checkpoint.VERSION + 1, 0),
            "was made by another kvproof",
        ),
        (
            checkpoint.HEAD.pack(checkpoint.MAGIC, checkpoint.VERSION, 2**63),
            "another length than it says",
        ),
    ],
)
def test_another_file_is_refused(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(content, tmp_path / "c")
    assert not Path("executed").exists()
