"""Good inputs, from which cases make odd ones: presets, traces, checkpoints."""

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.run_case import ROOT, run

Value = TypeVar("Value")

EXAMPLES = 3
"""The number of examples that Hypothesis makes for a case. The first is the simplest one, the same
for all cases; the last is used."""

PRESETS = ROOT / "model" / "presets" / "clusters"

SMALL = (
    "drafts-aligned",
    "events-sparse",
    "full",
    "hybrid",
    "oversized",
    "partial-tight",
    "pd-embeds",
    "pd-losing",
    "pd-stray",
    "priority-hybrid",
    "push-failing",
    "sparse-three",
    "state",
    "store-failing",
    "turns-hybrid",
    "unequal",
)
"""Presets with less than 70 states."""

FAULTS = (
    "front_trim",
    "double_free",
    "abort_frees_under_load",
    "drafts_are_cached",
    "chunk_rounds_up",
)
"""Faults of which a trace is made."""


@cache
def preset(name: str) -> dict[str, Any]:
    """The file of a preset as plain data."""
    data: dict[str, Any] = json.loads((PRESETS / f"{name}.json").read_text(encoding="utf-8"))
    return data


@cache
def traces() -> tuple[bytes, ...]:
    """Good traces: of the model, of findings, and of older schemas."""
    made = [_made("explore", "--fault", fault, "--traces", "made") for fault in FAULTS]
    kept = sorted(ROOT.glob("findings/*/trace.jsonl"))
    old = sorted((ROOT / "tests" / "testdata" / "old_traces").glob("*.jsonl"))
    return (*made, *(path.read_bytes() for path in (*kept, *old)))


@cache
def checkpoint(name: str, states: int | None) -> bytes:
    """The checkpoint of a search that was cut at this number of states, or ended."""
    cut = () if states is None else ("--states-max", str(states))
    return _made("explore", "--config", name, "--checkpoint", "made", *cut)


@cache
def explored(name: str) -> dict[str, Any]:
    """The JSON output of the search of a preset."""
    ended = run(Case(("explore", "--config", name, "--json")))
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _made(*argv: str) -> bytes:
    """The file `made`, or the only file in the folder `made`, that a run writes."""
    ended = run(Case(argv, outputs=("made",)), keep=True)
    assert ended.kept is not None
    made = ended.kept / "work" / "made"
    path = next(made.iterdir()) if made.is_dir() else made
    content = path.read_bytes()
    shutil.rmtree(ended.kept)
    return content


def drawn(strategy: st.SearchStrategy[Value], key: str, number: int) -> Value:
    """An example of a strategy that follows from `key` and `number` alone."""
    found: list[Value] = []

    @seed(random.Random(f"{key}:{number}").getrandbits(64))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Value) -> None:
        found.append(value)

    collect()
    return found[-1]


Chooser = Callable[[random.Random, str, int], Case]
"""Makes the case of a number: with a random source of its own, and the key for `drawn`."""
