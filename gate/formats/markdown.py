"""The result of the gate in Markdown, for the summary of a GitHub step and for an annotation of
Buildkite."""

import html
import re
from collections.abc import Iterator, Sequence

from kvproof.gate.formats import sentences as words
from kvproof.model.files.reading import shown
from kvproof.reports.output.gate import Gate, GateFinding

BYTES_MAX = 1_000_000
"""The size of the text. GitHub and Buildkite both take one MiB at most, and refuse more."""

IN_FULL = 20
"""The number of introduced findings that are printed with their runs."""

NOT_RUN_MAX = 200

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
    first = 1 if gate.verdict in ("UNKNOWN", "UNCHANGED") else 0
    if more := words.reason(gate)[first:]:
        yield _block(more) + "\n"
    yield from _introduced(gate)
    if mended := words.of_kind(gate, "mended"):
        yield "### Mended: on base, not in the same run of head\n"
        yield f"- {escaped(words.names(mended))}\n"
    if unknown := words.of_kind(gate, "not comparable"):
        yield "### Not comparable: on base; head does not take the run that shows it\n"
        yield from (f"- {escaped(words.parting(each))}" for each in unknown[:NOT_RUN_MAX])
        yield ""
    if gate.costs or words.of_kind(gate, "costs"):
        yield "### Costs: head does the same with more\n"
        yield from (f"- {escaped(words.cost(each))}" for each in gate.costs)
        for each in words.of_kind(gate, "costs"):
            yield from _finding(gate, each)
        yield ""
    if gate.lost:
        yield "### Lost: kvproof drives base by these names, and head does not have them\n"
        yield from (f"- {escaped(words.lost(each))}" for each in gate.lost)
        yield ""
    yield from _functions(gate)
    yield from _about(gate)


def _functions(gate: Gate) -> Iterator[str]:
    """The table of what the pull request changes."""
    if not gate.functions:
        return
    yield "### Changed functions\n"
    runs = f"executed by, of {gate.watched:,} runs"
    yield f"| changed function | accounting or not, and why | {runs} |"
    yield "|---|---|---|"
    for each in gate.functions[:NOT_RUN_MAX]:
        function = words.plain(each.function)
        what = "; ".join(filter(None, (words.belongs(each), words.executed(each))))
        yield f"| {escaped(function)} | {escaped(what)} | {words.driven(each)} |"
    if more := gate.functions[NOT_RUN_MAX:]:
        yield f"\nand {len(more):,} more"
    yield ""


def _introduced(gate: Gate) -> Iterator[str]:
    found = words.of_kind(gate, "introduced")
    if found:
        yield "### Introduced: on head, not on base\n"
    for each in found[:IN_FULL]:
        yield from _finding(gate, each)
    for each in found[IN_FULL:]:
        yield f"- {code(words.plain(each.signature))} ({escaped(words.plain(each.severity))})"
    yield ""


def _finding(gate: Gate, finding: GateFinding) -> Iterator[str]:
    yield f"#### {code(words.plain(finding.invariant))}\n"
    yield f"- must be true: {escaped(words.must_be_true(finding))}"
    yield f"- found: {escaped(words.plain(finding.sentence))}"
    yield f"- how grave: {escaped(words.grave(finding))}"
    yield f"- check: {escaped(words.check(finding))}"
    if finding.excuses:
        excuses = f"{words.named(finding.excuses)}; base needs no such excuse here"
        yield f"- excuse: {escaped(excuses)}"
    if gate.base is not None:
        yield f"- where: {escaped(words.where(finding.places))}"
    if finding.reproducer is not None:
        yield f"- reproducer: {escaped(words.result(finding.reproducer))}"
    if finding.trace is not None:
        yield f"- trace: {code(shown(finding.trace))}"
    if (command := words.replay(gate, finding)) is not None:
        yield f"- replay it: {code(words.plain(command))}"
    if finding.events:
        # In HTML a backslash would be shown.
        what = html.escape(words.run_of(finding))
        yield f"\n<details><summary>The shortest run: {what}</summary>\n"
        yield f"{_block(words.numbered(finding.events))}\n\n</details>"
    yield ""


def _about(gate: Gate) -> Iterator[str]:
    """What was compared, and how."""
    yield from (f"- {label}: {escaped(text)}" for label, text in words.trees(gate))
    yield from (f"- {label}: {escaped(text)}" for label, text in words.about(gate))
    if gate.not_run:
        yield f"\n<details><summary>Not run: {len(gate.not_run)}</summary>\n"
        yield from (f"- {escaped(words.plain(each))}" for each in gate.not_run[:NOT_RUN_MAX])
        if more := gate.not_run[NOT_RUN_MAX:]:
            yield f"- and {len(more)} more"
        yield "\n</details>"
