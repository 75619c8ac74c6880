"""The result of the gate as JUnit XML.

An introduced finding that makes the exit code 1 is a failure. What could not be judged is an error,
never a skip and never a pass.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import NamedTuple

from kvproof.gate.formats import sentences as words
from kvproof.gate.formats.sections import rows, sections
from kvproof.reports.gate_output import Gate, GateFinding

SUITE = "kvproof gate"

DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow; names and the errors of vLLM may contain them."""


class JUnitCase(NamedTuple):
    """One test case. `wrong` is the element that says why it does not pass, empty if it passes."""

    name: str
    text: str
    wrong: str = ""
    kind: str = ""
    message: str = ""


def document(gate: Gate) -> str:
    """The result as one test suite."""
    cases = list(_cases(gate))
    root = ET.Element(
        "testsuite",
        name=SUITE,
        tests=str(len(cases)),
        failures=str(sum(case.wrong == "failure" for case in cases)),
        errors=str(sum(case.wrong == "error" for case in cases)),
        skipped="0",
        time=f"{gate.seconds:.3f}",
    )
    for case in cases:
        element = ET.SubElement(root, "testcase", classname=SUITE, name=case.name, time="0.000")
        if case.wrong:
            wrong = ET.SubElement(element, case.wrong, message=case.message, type=case.kind)
            wrong.text = case.text
        else:
            ET.SubElement(element, "system-out").text = case.text
    ET.indent(root)
    text = NOT_XML.sub("\ufffd", ET.tostring(root, encoding="unicode"))
    return f"{DECLARATION}\n{text}\n"


def _cases(gate: Gate) -> Iterator[JUnitCase]:
    headline = words.headline(gate)
    why = "\n".join(words.reason(gate))
    introduced = words.of_kind(gate, "introduced")
    if gate.verdict == "UNKNOWN":
        yield JUnitCase("head is judged", why, "error", "UNKNOWN", headline)
    else:
        yield JUnitCase("head is judged", _facts(gate))
        if words.is_refused(gate):
            yield JUnitCase(
                f"{gate.verdict} is accepted", headline, "failure", gate.verdict, headline
            )
        elif not introduced:
            yield JUnitCase("nothing is introduced", headline)
    for each in introduced:
        name = f"introduced: {words.plain(each.signature)}"
        text = _about(gate, each)
        if each.fails:
            yield JUnitCase(name, text, "failure", words.plain(each.severity), words.not_true(each))
        else:
            yield JUnitCase(name, text)
    for one in gate.lost:
        text = words.lost(one)
        yield JUnitCase(f"can be driven: {words.plain(one.feature)}", text, "error", "LOST", text)


def _about(gate: Gate, finding: GateFinding) -> str:
    told = [f"{label}: {text}" for label, text in rows(gate, finding)]
    return "\n".join((*told, *words.numbered(finding.events)))


def _facts(gate: Gate) -> str:
    more = (f"{section.name}: {line}" for section in sections(gate) for line in section.lines)
    return "\n".join((*(f"{label}: {text}" for label, text in words.facts(gate)), *more))
