"""A finding of real vLLM is replayed in a process in which no episode came before it."""

from argparse import Namespace
from dataclasses import replace

import pytest

from kvproof.cli import sample
from kvproof.live.known import traces
from kvproof.model.traces.trace_reader import read

pytestmark = pytest.mark.live


def test_what_shows_alone_and_what_needs_earlier_episodes() -> None:
    """A finding that vLLM does not show in a fresh process stands for one that needs what earlier
    episodes left."""
    args = Namespace(vllm=None, cache=None)
    shown = read(traces.FOLDER / "superseded_state_reserved" / "trace.jsonl")
    assert shown.finding is not None
    assert sample._alone(args, shown) == []
    other = replace(shown, finding=replace(shown.finding, invariant="references_are_exact"))
    assert sample._alone(args, other) == [sample.NEEDS_EARLIER]
    assert sample._alone(args, None) == []
