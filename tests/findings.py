"""The kept findings, as tests read them: a folder each, named after its known finding."""

import ast
import re
import sys
from pathlib import Path

from kvproof.model.faults.registry import FAULTS
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read

FOLDER = Path(__file__).parent.parent / "findings"
FINDINGS = sorted(path.parent.name for path in FOLDER.glob("*/trace.jsonl"))
MODELLED = [name for name in FINDINGS if name in FAULTS]
"""Findings that the model shows as well, with the fault of the same name."""

ISSUES = sorted(FOLDER.glob("*/issue.md"))
"""Pages that are ready for vLLM's bug-report form."""

OTHERS = sorted(FOLDER.glob("*/README.md"))
"""Pages of findings that are no defects, and of findings that are reported on another's page."""

REPORTED_WITH = {
    path.parent.name: found[1]
    for path in OTHERS
    if (
        found := re.search(
            r"^Reported with `(\w+)`", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
}
"""The finding on whose page a finding is reported."""


def trace_of(name: str) -> Trace:
    """The trace of a finding."""
    return read(FOLDER / name / "trace.jsonl")


def report_of(name: str) -> str:
    """What the page of a finding says."""
    (page,) = (path for path in (*ISSUES, *OTHERS) if path.parent.name == name)
    return page.read_text(encoding="utf-8")


def imported(text: str) -> set[str]:
    """The packages that a program imports, without those of Python."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module))
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names
