"""What was run with the diffs of the findings' pages, as data, and the sentences about it.

`benchmarks/finding_diffs.py` runs it, and writes the data and the sentences.
"""

import hashlib
import json
import re
from typing import Any

from tests.finding_diffs import diff_of
from tests.findings import FOLDER

DATA = FOLDER / "gates.json"
TESTS = re.compile(r"^vLLM's own tests, with this diff: .*$", re.MULTILINE)
GATE = re.compile(r"^- Gate of the diff: .*$", re.MULTILINE)


def digest(name: str) -> str:
    """The hash of a page's diff. It changes with each character of it."""
    return hashlib.sha256(diff_of(name).encode()).hexdigest()[:16]


def known() -> dict[str, Any]:
    """What was run: for each finding the hash of the diff, its gate, and vLLM's tests."""
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.exists() else {}


def save(entries: dict[str, Any]) -> None:
    """Keep it, whole or not at all."""
    part = DATA.with_suffix(".part")
    part.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(DATA)


def is_red(entry: dict[str, Any]) -> bool:
    """Whether the diff breaks something: it is no fix then."""
    gate, tests = entry.get("gate"), entry.get("tests")
    return bool((gate and gate["introduced"]) or (tests and tests["broken"]))


def about_tests(entry: dict[str, Any]) -> str:
    """The sentence about vLLM's own tests."""
    tests = entry.get("tests")
    if tests is None:
        return "vLLM's own tests, with this diff: not run."
    folders = " and ".join(f"`{folder}`" for folder in tests["of"])
    end = f"{tests['passed']:,} of {folders} pass, as without it."
    if tests["broken"]:
        end = f"{len(tests['broken'])} of {folders} fail that pass without it."
    return f"vLLM's own tests, with this diff: {end}"


def about_gate(entry: dict[str, Any]) -> str:
    """The sentence about the gate."""
    gate = entry.get("gate")
    if gate is None:
        return "- Gate of the diff: not run."
    ran = f"{gate['traces']} traces and {gate['sampled']} random workloads, {gate['steps']:,} steps"
    if gate["introduced"]:
        found = ", ".join(f"`{each}`" for each in gate["introduced"])
        return f"- Gate of the diff: RED, it introduces {found} ({ran})."
    if gate["exit_code"]:
        return f"- Gate of the diff: {gate['verdict']}, {gate['reason']}."
    mended = ", ".join(f"`{each}`" for each in gate["mended"])
    end = f" mended: {mended}" if mended else " it met no finding that the diff mends"
    return f"- Gate of the diff: introduces nothing in {ran};{end}."


def rewritten(name: str, text: str) -> str:
    """A page with the sentences that its data give."""
    entry = known().get(name, {})
    if entry.get("diff") != digest(name):
        entry = {}
    text = TESTS.sub(lambda _: about_tests(entry), text)
    return GATE.sub(lambda _: about_gate(entry), text)
