"""A finding of real vLLM is replayed in a process in which no episode came before it."""

from argparse import Namespace

import pytest

from kvproof.cli import sample
from kvproof.cli.on_releases import ReleaseAnswer
from kvproof.live.known import traces
from kvproof.model.traces.trace_reader import read

pytestmark = pytest.mark.live


@pytest.mark.parametrize(("verdict", "says"), [("SAMPLED", True), ("UNKNOWN", False), ("", False)])
def test_what_shows_alone_and_what_needs_earlier_episodes(
    verdict: str, says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a verdict, the process is a real one, in which the finding shows."""
    if verdict:
        answer = ReleaseAnswer(verdict=verdict, why="")
        monkeypatch.setattr(sample, "replayed_alone", lambda *_: answer)
    trace = read(traces.FOLDER / "superseded_state_reserved" / "trace.jsonl")
    args = Namespace(vllm=None, cache=None)
    assert sample._alone(args, trace) == ([sample.NEEDS_EARLIER] if says else [])
