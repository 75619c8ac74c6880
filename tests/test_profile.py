"""The profile of a vLLM: which known findings it has, found out by following their traces and
kept by the hash of its files. The vLLM here is made up, and the model is driven in its place."""

import sys
from pathlib import Path

import msgspec
import pytest

from kvproof.cli import profile as profiles
from kvproof.cli.profile import Profile, inferred, profile
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import Machine, ModelMachine
from tests import made_trees
from tests.planted import under

FOUND = Profile(("copied_before_filled",), ("write_awaited_for_ever",))

BOTH = "failed_load_stays_cached"
"""A known finding of vLLM that is also a fault of the model."""


class Follows:
    """It takes the place of following the traces, and counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, _make: object) -> Profile:
        self.times += 1
        return FOUND


@pytest.fixture
def follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follows:
    """A made-up vLLM is the importable one, and following is counted."""
    made_trees.tree(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    counting = Follows()
    monkeypatch.setattr(profiles, "inferred", counting)
    return counting


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "profiles").iterdir())


def test_the_traces_are_followed_once_for_each_vllm(follows: Follows, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert [profile(ModelMachine, cache) for _ in range(3)] == [FOUND] * 3
    assert (follows.times, len(kept(cache))) == (1, 1)
    pool = tmp_path / "site" / "vllm" / "v1" / "core" / "block_pool.py"
    pool.write_text(made_trees.CHANGED, encoding="utf-8")
    assert profile(ModelMachine, cache) == FOUND
    assert (follows.times, len(kept(cache))) == (2, 2)
    pool.write_text(made_trees.POOL, encoding="utf-8")
    profile(ModelMachine, cache)
    assert follows.times == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"has":[1],"unknown":[]}', b'{"has":[],"more":1}']
)
def test_a_damaged_file_is_replaced(follows: Follows, tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "cache"
    profile(ModelMachine, cache)
    [file] = kept(cache)
    whole = file.read_bytes()
    file.write_bytes(content)
    assert profile(ModelMachine, cache) == FOUND
    assert follows.times == 2
    assert kept(cache) == [file]
    assert file.read_bytes() == whole
    assert msgspec.json.decode(whole, type=Profile) == FOUND


def test_what_a_machine_does_is_its_profile() -> None:
    """The reference has none of the known findings, and the model with a fault has that one. What
    only live vLLM is driven with is unknown of it."""
    wrong = under([FAULTS[BOTH]], inferred, ModelMachine)
    assert BOTH in wrong.has
    right = inferred(ModelMachine)
    only_live = (
        *("begun_block_given_up_by_window", "continued_session_is_not_counted"),
        *("copy_of_load_not_reserved", "session_caches_older_state"),
        *("session_loads_more_than_sent", "shrunk_hit_is_not_matched_again"),
    )
    assert (right.has, right.unknown) == ((), only_live)


@pytest.mark.parametrize("error", [AdapterDrift("This vLLM has no x"), TypeError("f() got y")])
def test_a_trace_that_cannot_be_followed_is_unknown(error: Exception) -> None:
    def fails(_cluster: Cluster) -> Machine:
        raise error

    found = inferred(fails)
    assert found.has == ()
    assert {*found.unknown} == {each.name for each in found.known}
    assert {*found.unknown} <= {*KNOWN}
