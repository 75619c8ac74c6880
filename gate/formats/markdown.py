"""The result of the gate in Markdown, for the summary of a GitHub step and for an annotation of
Buildkite."""

import html
import re
from collections.abc import Iterator, Sequence

from kvproof.gate.formats import sentences as words
from kvproof.gate.formats.sections import REPLAY, rows, sections
from kvproof.reports.gate_output import Gate, GateFinding

BYTES_MAX = 1_000_000
"""The size of the text. GitHub and Buildkite both take one MiB at most, and refuse more."""

IN_FULL = 20
"""The number of findings of one kind that are printed with their runs."""

LINES_MAX, OPEN_MAX = 200, 10
"""The number of lines of one part, and of those that are shown unasked."""

SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&@$]|:(?=[\w+-]+:))")
"""What may mean something inside a line of Markdown, in HTML or on GitHub. No line begins with a
text from outside."""

CUT = "\n\nThe rest is cut off: this summary has a limited size.\n"


def document(gate: Gate) -> str:
    """The result as Markdown of at most BYTES_MAX bytes."""
    whole = "\n".join(_lines(gate)) + "\n"
    data = whole.encode()
    if len(data) <= BYTES_MAX:
        return whole
    return data[: BYTES_MAX - len(CUT)].decode("utf-8", "ignore").rpartition("\n")[0] + CUT


def escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """A text as code, also if it has backticks."""
    fence = _fence(text, "`")
    return f"{fence} {text} {fence}" if "`" in text or not text.strip() else f"`{text}`"


def _fence(text: str, shortest: str) -> str:
    """Backticks that the text does not have so many of in a row."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return max(shortest, "`" * (longest + 1), key=len)


def _block(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    fence = _fence(text, "```")
    return f"{fence}text\n{text}\n{fence}"


def _lines(gate: Gate) -> Iterator[str]:
    yield f"## kvproof: {escaped(words.headline(gate))}\n"
    if reason := words.more_reason(gate):
        yield _block(reason) + "\n"
    for section in sections(gate):
        about = f": {section.about}" * bool(section.about)
        yield f"### {section.name.capitalize()}{about}\n"
        yield from _folded([f"- {escaped(line)}" for line in section.lines[:LINES_MAX]])
        if more := section.lines[LINES_MAX:]:
            yield f"\nand {len(more):,} more"
        for each in section.findings[:IN_FULL]:
            yield from _finding(gate, each)
        yield ""
        for each in section.findings[IN_FULL:]:
            yield f"- {code(words.plain(each.signature))} ({escaped(words.plain(each.severity))})"
        yield ""
    yield from (f"- {label}: {escaped(text)}" for label, text in words.facts(gate))


def _folded(lines: Sequence[str]) -> Iterator[str]:
    """Lines, to be opened by the reader if they are many."""
    if len(lines) <= OPEN_MAX:
        yield from lines
    else:
        yield from (f"<details><summary>{len(lines)}</summary>\n", *lines, "\n</details>")


def _finding(gate: Gate, finding: GateFinding) -> Iterator[str]:
    yield f"\n#### {code(words.plain(finding.invariant))}\n"
    for label, text in rows(gate, finding):
        yield f"- {label}: {code(words.plain(text)) if label == REPLAY else escaped(text)}"
    if finding.events:
        # In HTML a backslash would be shown.
        what = html.escape(words.run_of(finding))
        yield f"\n<details><summary>The shortest run: {what}</summary>\n"
        yield f"{_block(words.numbered(finding.events))}\n\n</details>"
