"""The result of the gate as workflow commands of GitHub Actions: each puts an annotation on a
changed line. The runner reads them from standard output and from standard error."""

from collections.abc import Iterator

from kvproof.gate.formats import sentences as words
from kvproof.model.counted import counted
from kvproof.reports.gate_output import Gate, GateFinding

ANNOTATIONS_MAX = 10
"""GitHub shows so many annotations of one kind and step, and drops the others."""

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def commands(gate: Gate) -> list[str]:
    """The workflow commands, one line each."""
    found = [_finding(gate, each) for each in words.of_kind(gate, "introduced")]
    if len(found) > ANNOTATIONS_MAX:
        more = len(found) - ANNOTATIONS_MAX + 1
        text = f"{counted(more, 'more defect')} introduced; the summary has all"
        found[ANNOTATIONS_MAX - 1 :] = [_command("error", "kvproof", text)]
    return [*found, *_unjudged(gate)]


def _unjudged(gate: Gate) -> Iterator[str]:
    if gate.verdict == "UNKNOWN":
        why = [words.headline(gate), *words.reason(gate)[1:], *map(words.lost, gate.lost)]
        yield _command("warning", "kvproof: this pull request was not judged", "\n".join(why))
    if words.is_refused(gate):
        yield _command("error", f"kvproof: {gate.verdict}", words.headline(gate))


def _finding(gate: Gate, finding: GateFinding) -> str:
    text = [words.not_true(finding), f"Found: {words.plain(finding.sentence)}"]
    if finding.reproducer is not None:
        text.append(f"Reproducer: {words.reproducer(finding.reproducer)}")
    if (again := words.replay(gate, finding)) is not None:
        text.append(f"Replay it: {words.plain(again)}")
    # What makes the job red is an error, whatever its severity.
    command = "error" if finding.fails else COMMANDS[words.level(finding)]
    title = f"kvproof: {words.plain(finding.signature, 200)} ({words.plain(finding.severity)})"
    place = finding.places[0] if finding.places else None
    where = () if place is None else (("file", place.file), ("line", str(place.line)))
    return _command(command, title, "\n".join(text), *where)


def _command(name: str, title: str, text: str, *properties: tuple[str, str]) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in (*properties, ("title", title)))
    return f"::{name} {given}::{_data(text)}"


def _data(text: str) -> str:
    """A message: these characters would end it, or be read as an escape."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The value of a property: a colon or a comma would end it."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
