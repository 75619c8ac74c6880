"""The result of the gate as SARIF and as JUnit XML, whatever texts it has."""

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from kvproof.gate.formats import junit, sarif
from kvproof.gate.formats.levels import LEVELS, level
from kvproof.model.severity import MEANINGS, Severity
from kvproof.reports.output.gate import Gate
from tests.conftest import TESTDATA
from tests.gates import ALL, EVENTS, STILL, finding, gate

EVERY = pytest.mark.parametrize("name", ALL)
UNKNOWN = sorted(name for name, each in ALL.items() if each.verdict == "UNKNOWN")

# SARIF


def sarif_of(result: Gate) -> dict[str, Any]:
    log = json.loads(sarif.document(result))
    jsonschema = pytest.importorskip("jsonschema")
    rules = json.loads((TESTDATA / "sarif_of_the_gate.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(rules).validate(log)
    [run] = log["runs"]
    for each in run["results"]:
        assert run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
    return run


@EVERY
def test_sarif_matches_its_schema(name: str) -> None:
    run = sarif_of(ALL[name])
    assert len(run["results"]) == len(ALL[name].findings)
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] == (name not in UNKNOWN)
    assert invocation["exitCode"] == ALL[name].exit_code
    assert len(sarif.document(ALL[name])) < 10_000_000


def test_a_code_flow_lies_on_the_changed_lines() -> None:
    result = sarif_of(ALL["introduced"])["results"][0]
    place = {
        "artifactLocation": {
            "uri": "vllm/v1/core/sched/scheduler.py",
            "uriBaseId": "%SRCROOT%",
        },
        "region": {"startLine": 812},
    }
    assert [each["physicalLocation"] for each in result["locations"]] == [place]
    [flow] = result["codeFlows"][0]["threadFlows"]
    found = [each["location"]["message"]["text"] for each in flow["locations"]]
    assert tuple(found) == EVENTS
    assert all(each["location"]["physicalLocation"] == place for each in flow["locations"])
    assert [each["executionOrder"] for each in flow["locations"]] == list(range(1, 15))


def test_only_what_is_introduced_is_new_in_sarif() -> None:
    found = sarif_of(gate(verdict="VIOLATED", findings=(*ALL["several"].findings, *STILL)))
    states = {
        state: [each for each in found["results"] if each["baselineState"] == state]
        for state in ("new", "unchanged", "absent")
    }
    assert {state: len(each) for state, each in states.items()} == {
        "new": 3,
        "unchanged": 3,
        "absent": 1,
    }
    assert not any("suppressions" in each for each in states["new"])
    assert all("suppressions" in each for each in states["unchanged"] + states["absent"])
    assert states["absent"][0]["kind"] == "pass"
    prints = [each["partialFingerprints"]["kvproofSignature/v1"] for each in found["results"]]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("severity", Severity)
def test_the_level_follows_from_the_severity(severity: Severity) -> None:
    wanted = {
        1: "error",
        2: "error",
        3: "error",
        4: "warning",
        5: "warning",
        6: "warning",
        7: "note",
    }
    assert level(finding(severity=severity.words)) == wanted[severity]
    assert set(LEVELS) == set(MEANINGS) == set(Severity)


def test_an_unknown_severity_is_an_error() -> None:
    assert level(finding(severity="new kind")) == "error"


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_was_not_judged_is_in_the_notifications(name: str) -> None:
    [invocation] = sarif_of(ALL[name])["invocations"]
    notes = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert notes[0].startswith("UNKNOWN: ")
    wanted = {"lost": "get_transfer_results", "not driven": "KV offloading"}
    assert wanted.get(name, "No module named") in "\n".join(notes)


# JUnit


def suite_of(result: Gate) -> ET.Element:
    """The suite, if it has the form that the readers of JUnit agree on (Jenkins' schema)."""
    suite = ET.fromstring(junit.document(result))
    counts = ("tests", "failures", "errors", "skipped")
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == {"name", "time", *counts}
    assert all(re.fullmatch("[0-9]+", suite.attrib[each]) for each in counts)
    assert {each.tag for each in suite} == {"testcase"}
    for case in suite:
        assert set(case.attrib) == {"classname", "name", "time"}
        assert len(case) == 1
        assert case[0].tag in ("failure", "error", "system-out")
        assert set(case[0].attrib) == (
            set() if case[0].tag == "system-out" else {"message", "type"}
        )
        assert len(case[0]) == 0
    for element in suite.iter():
        for key in ("time",):
            assert re.fullmatch(r"[0-9]+\.[0-9]{3}", element.get(key, "0.000"))
    assert int(suite.attrib["tests"]) == len(suite)
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
    return suite


@EVERY
def test_junit_has_its_form(name: str) -> None:
    result = ALL[name]
    suite = suite_of(result)
    assert int(suite.attrib["failures"]) == sum(
        each.fails and each.kind == "introduced" for each in result.findings
    )
    judged = suite[0]
    assert judged.get("name") == "head is judged"
    assert (judged.find("error") is not None) == (name in UNKNOWN)
    red = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert bool(red) == (result.exit_code != 0)
