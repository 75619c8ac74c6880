"""The result of the gate as SARIF 2.1.0, for code scanning: a finding lies on the changed functions
that its run calls.

Each result has a location, because GitHub refuses a whole file for one result without. What is on
base is marked as suppressed, what is mended passes, and what cannot be compared is open, so that
none of them becomes an alert of the pull request.
"""

import hashlib
import json
from typing import Any
from urllib.parse import quote

import kvproof
from kvproof.gate.formats import sentences as words
from kvproof.reports.gate_output import Class, Gate, GateFinding, GatePlace

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

ROOT = "%SRCROOT%"
"""Stands for the root of the repository in paths."""

STATES: dict[Class, str] = {
    "introduced": "new",
    "costs": "new",
    "still there": "unchanged",
    "mended": "absent",
    "not comparable": "unchanged",
}

KINDS: dict[Class, str] = {"mended": "pass", "not comparable": "open", "costs": "informational"}
"""SARIF's word for a result: `fail` where there is none here. `open` is what was not decided."""

ELSEWHERE = GatePlace(file="vllm/__init__.py", line=1, function="vLLM as a whole")
"""The location of a finding whose run calls no changed function that is known."""


def document(gate: Gate) -> str:
    """The result as JSON text in ASCII."""
    rules: dict[str, GateFinding] = {}
    for each in gate.findings:
        rules.setdefault(each.invariant, each)
    ids = list(rules)
    driver = {
        "name": "kvproof",
        "semanticVersion": kvproof.__version__,
        "shortDescription": _text("checks the KV-cache accounting of vLLM"),
        "rules": [_rule(each) for each in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "kvproof/gate/"},
        "originalUriBaseIds": {ROOT: {"description": _text("the root of vLLM's repository")}},
        "invocations": [_invocation(gate)],
        "results": [_result(gate, each, ids.index(each.invariant)) for each in gate.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _text(text: str) -> dict[str, str]:
    return {"text": text}


def _rule(finding: GateFinding) -> dict[str, Any]:
    """The invariant or guard of a finding."""
    sentence = words.must_be_true(finding) or words.plain(finding.invariant)
    full = f"It must be true that {sentence}."
    return {
        "id": words.plain(finding.invariant),
        "shortDescription": _text(sentence),
        "fullDescription": _text(full),
        "help": _text(f"{full} How grave: {words.plain(finding.severity)}."),
        "defaultConfiguration": {"level": words.level(finding)},
        "properties": {"tags": ["kv-cache", words.plain(finding.severity)]},
    }


def _result(gate: Gate, finding: GateFinding, index: int) -> dict[str, Any]:
    kind = KINDS.get(finding.kind, "fail")
    places = finding.places or (ELSEWHERE,)
    signature = hashlib.sha256(finding.signature.encode("utf-8", "backslashreplace")).hexdigest()
    found: dict[str, Any] = {
        "ruleId": words.plain(finding.invariant),
        "ruleIndex": index,
        "kind": kind,
        "level": words.level(finding) if kind == "fail" else "none",
        "message": _text(_message(gate, finding)),
        "locations": [_location(place) for place in places],
        "partialFingerprints": {"kvproofSignature/v1": signature},
        "baselineState": STATES[finding.kind],
    }
    if finding.kind not in ("introduced", "costs"):
        why = f"{finding.kind}: base has it, so the pull request does not introduce it"
        found["suppressions"] = [{"kind": "external", "justification": why}]
    return found


def _message(gate: Gate, finding: GateFinding) -> str:
    """What is broken, what was found, and how to see it again."""
    command = words.replay(gate, finding)
    again = f"\nReplay it: {command}" if command else ""
    if finding.reproducer is not None:
        again += f"\nReproducer: {words.reproducer(finding.reproducer)}"
    first = f"It is not always true that {words.must_be_true(finding)}." if finding.sentence else ""
    return f"{first}\nFound: {words.plain(finding.sentence)}{again}".strip()


def _location(place: GatePlace) -> dict[str, Any]:
    uri = quote(place.file, errors="backslashreplace")
    name = {"fullyQualifiedName": words.plain(place.function), "kind": "function"}
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri, "uriBaseId": ROOT},
            "region": {"startLine": place.line},
        },
        "logicalLocations": [name],
    }


def _invocation(gate: Gate) -> dict[str, Any]:
    """How the run ended: what is UNKNOWN was not a success."""
    unknown = gate.verdict == "UNKNOWN"
    headline = words.headline(gate)
    why = "\n".join([headline, *words.reason(gate)[1:]])
    noted = [_note("error", why)] if unknown else []
    noted += [_note("error", f"LOST: {words.lost(each)}") for each in gate.lost]
    noted += [_note("note", f"Not run: {words.plain(each)}") for each in gate.not_run]
    return {
        "executionSuccessful": not unknown,
        "exitCode": gate.exit_code,
        "exitCodeDescription": headline,
        "toolExecutionNotifications": noted,
    }


def _note(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": _text(text)}
