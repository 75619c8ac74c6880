"""What is wrong with the end of a case."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.fuzz.case import HOLDS, NOT_PRINTED, REFUSED, UNKNOWN, VIOLATED, Case
from tests.fuzz.run_case import Ended
from tests.fuzz.valid import wrong

MEMORY_MAX_MIB = 300

VERDICTS = re.compile(rb"\b(?:EXHAUSTED|VIOLATED|SAMPLED|PROVED|DIFFERS)\b")
SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
TRACEBACK = b"Traceback (most recent call last)"
NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters: a name that has some could write to the terminal."""


def problems(case: Case, ended: Ended) -> list[str]:
    """All that is wrong, one line each; empty if the run is as it must be."""
    if ended.code is None:
        return [f"it hangs: killed after {ended.seconds:.0f} s"]
    return [*_ends(case, ended), *_belief(case, ended), *_printed(case, ended), *ended.problems]


def _ends(case: Case, ended: Ended) -> Iterator[str]:
    if TRACEBACK in ended.stdout + ended.stderr or b"Exception ignored" in ended.stderr:
        yield f"a traceback: {_raised(ended.stdout + ended.stderr)}"
    broken = case.stdout != "file"
    codes = {HOLDS, VIOLATED, REFUSED, UNKNOWN} | ({NOT_PRINTED} if broken else set())
    if ended.code not in codes:
        yield f"exit code {ended.code}"
    if broken and ended.code not in (REFUSED, NOT_PRINTED):
        yield f"exit code {ended.code}, although standard output is {case.stdout}"
    if ended.memory_mib > MEMORY_MAX_MIB:
        yield f"{ended.memory_mib:.0f} MiB of memory"
    if ended.code in (REFUSED, NOT_PRINTED) and case.stderr == "file":
        yield from _message(_last(ended.stderr))


def _raised(printed: bytes) -> str:
    """The last line of a traceback, and the last place in kvproof that it names."""
    text = printed.decode("utf-8", "replace")
    places = re.findall(r'File ".*/(kvproof/[^"]*)", line (\d+)', text)
    lines = [line for line in text[text.rfind("Traceback") :].split("\n")[1:] if line[:1].strip()]
    where = " in {}:{}".format(*places[-1]) if places else ""
    return f"{lines[0] if lines else ''}"[:200] + where


def _last(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").rstrip("\n").split("\n")
    return lines[-1]


def _message(line: str) -> Iterator[str]:
    """A refusal is one line of two sentences; the second begins with "Use". Text of the user in
    the first may look like the end of a sentence."""
    if not line.endswith(".") or len(SENTENCE_END.findall(line)) < 2:
        yield f"an error that is not two sentences: {line[:300]!r}"


def _belief(case: Case, ended: Ended) -> Iterator[str]:
    """No verdict from an input that the schema does not allow, and none that damage changed."""
    if case.invalid and ended.code not in case.refusals and case.stdout == "file":
        yield f"exit code {ended.code} for an input that is not valid: {case.invalid}"
    if case.invalid and (found := VERDICTS.search(ended.stdout)):
        yield f"{found[0].decode()} for an input that is not valid: {case.invalid}"
    if case.same_as is not None and ended.code != REFUSED:
        printed = _object(ended.stdout) or {}
        differs = [n for n, v in case.same_as.items() if _at(printed, n) != v]
        if differs:
            yield f"damage changed the result: {', '.join(differs)}"


def _at(printed: Any, path: str) -> Any:
    for name in path.split("."):
        printed = printed.get(name) if isinstance(printed, dict) else None
    return printed


def _printed(case: Case, ended: Ended) -> Iterator[str]:
    if case.stdout != "file":
        return
    if case.as_json and not (ended.code == REFUSED and not ended.stdout):
        printed = _object(ended.stdout)
        if printed is None:
            yield "standard output is not one JSON object"
        elif printed.get("exit_code") != ended.code:
            printed_code = printed.get("exit_code")
            yield f"exit_code is {printed_code!r}, and the process ends with {ended.code}"
        elif why := wrong("output", printed):
            yield f"the output does not fit its schema: {why}"
    for name, data in (("output", ended.stdout), ("error", ended.stderr)):
        text = data.decode("utf-8", "replace")
        if found := NOT_TEXT.search(text):
            near = text[max(0, found.start() - 40) : found.end() + 20]
            yield f"standard {name} has the control character {found[0]!r} near {near!r}"


def _object(data: bytes) -> dict[str, Any] | None:
    """The one JSON object of an output; None if it is something else."""

    def no_constant(name: str) -> Any:
        raise ValueError(name)

    try:
        value = json.loads(data.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
