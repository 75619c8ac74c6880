"""The kept findings, as tests read them: a folder each, named after its deviation."""

from pathlib import Path

from kvproof.model.faults.registry import FAULTS
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read

FOLDER = Path(__file__).parent.parent / "findings"
FINDINGS = sorted(path.parent.name for path in FOLDER.glob("*/trace.jsonl"))
MODELLED = [name for name in FINDINGS if name in FAULTS]
"""Findings that the model shows as well, with the fault of the same name."""


def trace_of(name: str) -> Trace:
    """The trace of a finding."""
    return read(FOLDER / name / "trace.jsonl")


def report_of(name: str) -> str:
    """What is told of a finding: in its own folder, or together with the others."""
    own = FOLDER / name / "README.md"
    return (own if own.exists() else FOLDER / "README.md").read_text(encoding="utf-8")
