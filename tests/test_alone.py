"""A finding of real vLLM is replayed in a process in which no episode came before it."""

from argparse import Namespace
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any

import pytest

from kvproof.cli import sample
from kvproof.cli.on_releases import ReleaseAnswer
from kvproof.live import children
from kvproof.live.known import traces
from kvproof.model.traces.trace_reader import read

pytestmark = pytest.mark.live


@pytest.mark.parametrize(("verdict", "says"), [("SAMPLED", True), ("UNKNOWN", False), ("", False)])
def test_what_shows_alone_and_what_needs_earlier_episodes(
    verdict: str, says: bool, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a verdict, the command that the process has is carried out, and shows the finding."""
    if verdict:
        answer = ReleaseAnswer(verdict=verdict, why="")
        monkeypatch.setattr(sample, "replayed_alone", lambda *_: answer)

    def here(command: Sequence[str], **_: object) -> "CompletedProcess[str]":
        assert command[1:3] == ["-m", "kvproof"]
        return CompletedProcess(command, *run(*command[3:]))

    monkeypatch.setattr(children, "run", here)
    trace = read(traces.FOLDER / "superseded_state_reserved" / "trace.jsonl")
    args = Namespace(vllm=None, cache=None)
    assert sample._alone(args, trace) == ([sample.NEEDS_EARLIER] if says else [])
