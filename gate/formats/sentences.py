"""What a result of the gate says, in the words that every reader of it is given.

A text that comes from outside (an error of vLLM, a path, a name) is made one printable line of
limited length here, so that no output can be broken by it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from kvproof.gate.difference.workload import ENGINE
from kvproof.model.counted import are, counted, was
from kvproof.model.files.reading import printable, shown
from kvproof.model.severity import MEANINGS, Severity
from kvproof.reports.gate_output import (
    Class,
    Gate,
    GateCost,
    GateFinding,
    GateFunction,
    GateLost,
    GatePlace,
    GateTree,
)
from kvproof.reports.terminal import shell_word

LONG = 1000
"""The number of characters of one text."""

FEW = 3
"""The number of places, functions or features that a line names."""

KINDS: tuple[Class, ...] = ("introduced", "mended", "not comparable", "costs", "still there")

SEVERITIES = {each.words: each for each in Severity}

Level = Literal["error", "warning", "note"]

LEVELS: dict[Severity, Level] = {
    Severity.WRONG_TOKENS: "error",
    Severity.CRASH: "error",
    Severity.HANG: "error",
    Severity.LEAK: "warning",
    Severity.LOST_PERFORMANCE: "warning",
    Severity.WRONG_REPORT: "warning",
    Severity.BOOKKEEPING: "note",
}
"""How a finding of each severity counts for a CI system."""


def level(finding: GateFinding) -> Level:
    """The level of a finding by its severity. An unknown severity is an error, never less."""
    severity = SEVERITIES.get(finding.severity)
    return "error" if severity is None else LEVELS[severity]


def plain(text: str, limit: int = LONG) -> str:
    """A text on one printable line of at most `limit` characters."""
    text = printable(text[: limit + 1])
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def plain_lines(text: str, lines_max: int) -> list[str]:
    """The lines of a text, the last ones if there are more: there an error names its cause."""
    lines = [plain(line) for line in text.splitlines() if line.strip()]
    return lines if len(lines) <= lines_max else ["...", *lines[1 - lines_max :]]


def named(names: Sequence[str], few: int = FEW) -> str:
    """The first few names, and how many there are beside them."""
    more = len(names) - few
    return ", ".join(map(plain, names[:few])) + (f" and {more} more" if more > 0 else "")


def of_kind(gate: Gate, kind: Class) -> list[GateFinding]:
    """The findings of one kind: first those that make the exit code 1, then the most severe."""
    chosen = (each for each in gate.findings if each.kind == kind)
    return sorted(chosen, key=lambda each: (not each.fails, SEVERITIES.get(each.severity, 0)))


def reason(gate: Gate) -> list[str]:
    """The lines of the reason; empty if there is none."""
    return [] if gate.reason is UNSET else plain_lines(gate.reason, 12)


def more_reason(gate: Gate) -> list[str]:
    """The lines of the reason that the headline does not have."""
    return reason(gate)[1 if gate.verdict in ("UNKNOWN", "UNCHANGED") else 0 :]


def headline(gate: Gate) -> str:
    """The verdict in one sentence."""
    why = (reason(gate) or ["no reason is known"])[0]
    if gate.verdict == "UNKNOWN":
        return _sentence(f"UNKNOWN: {why}")
    if gate.verdict == "UNCHANGED":
        return _sentence(f"The KV-cache accounting is unchanged: {why}")
    introduced = of_kind(gate, "introduced")
    if gate.verdict == "NO EFFECT":
        return (
            f"No effect: in {counted(gate.ran.compared, 'run')} head and base were equal in "
            "everything that can be seen, and executed all of the change that does more than raise "
            "an exception. A refactoring should look like this; if the change is meant to do "
            "something, these runs do not show it."
        )
    if not introduced and gate.verdict == "COSTS":
        costs = [each.what for each in gate.costs]
        costs += [each.invariant for each in of_kind(gate, "costs")]
        return _sentence(f"Nothing introduced, and head costs more: {named(costs)}")
    if not introduced:
        some = f"it had {effect(gate)}" * bool(gate.ran.differing)
        return _sentence("; ".join(filter(None, [_nothing(gate), some, *_others(gate)])))
    first = introduced[0]
    begin = f"{counted(len(introduced), 'defect')} introduced"
    begin += "" if len(introduced) == 1 else ". The gravest"
    tolerated = "" if first.fails else " That is below --fail-on, so the exit code is not 1."
    return f"{begin} ({plain(first.severity)}): {_sentence(not_true(first))}{tolerated}"


def _nothing(gate: Gate) -> str:
    """That nothing is introduced, with how far this was looked at."""
    number, left = len(gate.changed_functions), len(gate.changed_functions) - len(gate.reached)
    parts = sum(bool(each.not_executed or each.not_seen) for each in gate.functions)
    yet = []
    if left:
        functions = counted(number, "function")
        yet.append(f"{left:,} of the {functions} that head changes {was(left)} not reached")
    if parts:
        yet.append(f"the change of {counted(parts, 'function')} {was(parts)} executed in part")
    return "Nothing introduced" + f" in what was driven, yet {', and '.join(yet)}" * bool(yet)


def line_of(line: int) -> str:
    """A line of head, or of base where head only removes it."""
    return f"{line}" if line > 0 else f"{-line} of base"


def not_true(finding: GateFinding) -> str:
    """What is broken, in plain words."""
    if not finding.says:
        return f"on head, {plain(finding.sentence)}"
    return f"on head it is not always true that {plain(finding.says)}"


def _others(gate: Gate) -> list[str]:
    mended, unknown = len(of_kind(gate, "mended")), len(of_kind(gate, "not comparable"))
    found = []
    if mended:
        found.append(f"{counted(mended, 'defect')} of base {are(mended)} mended")
    if unknown:
        found.append(f"{counted(unknown, 'defect')} of base cannot be compared on head")
    return found


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def must_be_true(finding: GateFinding) -> str:
    """The sentence that must be true, with where it comes from."""
    origin = f" ({plain(finding.origin)})" if finding.origin else ""
    return f"{plain(finding.says)}{origin}"


def grave(finding: GateFinding) -> str:
    """How grave a finding is, and what that means."""
    known = SEVERITIES.get(finding.severity)
    return plain(finding.severity) + (
        f": the check guards against {MEANINGS[known]}" if known else ""
    )


def check(finding: GateFinding) -> str:
    """The check that fails, with the known finding that explains it, if any."""
    known = f"; known as {plain(finding.known)}" if finding.known is not None else ""
    return f"{plain(finding.signature)}{known}"


def where(places: Sequence[GatePlace]) -> str:
    """The changed functions that a run calls, with file and line."""
    if not places:
        return "no changed function is known to be called by the run"
    text = named([f"{each.file}:{each.line} {each.function}" for each in places])
    return f"{text}, changed by this pull request and called by the run"


def run_of(finding: GateFinding) -> str:
    """What the events of a finding are."""
    if finding.connector is not None:
        return f"an engine and what happens to it, with the connector {plain(finding.connector)}"
    if finding.cluster == ENGINE:
        return "an engine that starts: its layers, the memory of its workers, and its messages"
    length = counted(len(finding.events), "event")
    return (
        f"{length}, with the engines and requests of cluster {plain(finding.cluster)}; "
        "the last one breaks it"
    )


def numbered(events: Sequence[str]) -> list[str]:
    """Events that break a check at the last one, one line each, with their numbers."""
    return [
        f"{'>' if number == len(events) else ' '}{number:3}  {plain(event)}"
        for number, event in enumerate(events, 1)
    ]


def reproducer(path: str) -> str:
    """The file of a reproducer, which was run on both trees."""
    what = "a pytest file that needs vLLM alone"
    return f"{shown(path)} ({what}): it fails on head and passes on base"


def replay(gate: Gate, finding: GateFinding, *, here: bool = False) -> str | None:
    """The command that shows a finding on head again, `here` or on the machine of those who read
    the report of a CI system; None if it has no trace."""
    if finding.trace is None:
        return None
    tree = ""
    if gate.head.path is not None:
        tree = f" --vllm {shell_word(Path(gate.head.path)) if here else 'CHECKOUT-OF-HEAD'}"
    return f"kvproof replay {shell_word(Path(finding.trace))}{tree}"


def names(findings: Sequence[GateFinding]) -> str:
    """The known finding or the check of each finding, with counts."""
    found = [each.known or each.invariant for each in findings]
    return ", ".join(
        f"{plain(name)}{f' ({found.count(name)})' if found.count(name) > 1 else ''}"
        for name in dict.fromkeys(found)
    )


def parting(finding: GateFinding) -> str:
    """A finding of base, with where head leaves its run."""
    return f"{names([finding])}: {plain(finding.parting or 'no reason is known', 300)}"


def cost(one: GateCost) -> str:
    """A quantity that costs more on head, with where head leaves base in the smallest run."""
    amount = f"{one.base:,} -> {one.head:,}"
    percent = f" ({one.head / one.base - 1:+.1%})" if one.base else ""
    part = f"; smallest: {plain(one.workload)}" + (
        f", from {plain(one.parts)} on" * bool(one.parts)
    )
    return (
        f"{plain(one.what)}: worse in {one.worse:,} of {counted(one.runs, 'run')}, better in "
        f"{one.better or 'none'}, and so again in fresh runs; where they differ "
        f"{amount}{percent}{part}"
    )


def is_refused(gate: Gate) -> bool:
    """Whether an option makes the exit code of COSTS or NO EFFECT another one than 0."""
    return gate.verdict in ("COSTS", "NO EFFECT") and gate.exit_code in (1, 3)


def effect(gate: Gate) -> str:
    """In how many runs head differs from base; empty where nothing was compared."""
    if not gate.ran.compared:
        return ""
    return (
        f"an effect in {gate.ran.differing:,} of {counted(gate.ran.compared, 'run')} that both took"
    )


def lost(one: GateLost) -> str:
    """A feature that cannot be driven, and the name that vLLM lacks."""
    why = f" ({plain(one.why)})" if one.why else ""
    return f"{plain(one.feature)}: this vLLM has no {plain(one.entry)}{why}"


def tree(one: GateTree) -> str:
    """A vLLM in a line."""
    version = f", version {plain(one.version)}" if one.version else ""
    return f"{plain(one.name)}{version}, hash {plain(one.fingerprint[:12])}"


def trees(gate: Gate) -> list[tuple[str, str]]:
    """Base and head, and the features of each that kvproof cannot drive: labels and texts."""
    found = [("head", tree(gate.head)), ("base", tree(gate.base))]
    of_head, of_base = gate.head.not_driven, gate.base.not_driven
    both = tuple(each for each in of_head if each in of_base)
    for where_, each in (
        ("base and head", both),
        ("head", tuple(one for one in of_head if one not in both)),
        ("base", tuple(one for one in of_base if one not in both)),
    ):
        if each:
            found.append(("not checked", f"on {where_}: {named([*map(lost, each)])}"))
    return found


def changed(gate: Gate) -> str:
    """How many functions the pull request changes, and how many of them were executed."""
    number, reached = len(gate.changed_functions), len(gate.reached)
    if not number:
        return "no function of the KV-cache accounting"
    return (
        f"{counted(number, 'function')} of the KV-cache accounting; {reached:,} of them "
        f"{was(reached)} executed here"
    )


def function(each: GateFunction) -> str:
    """A changed function: whether it is accounting, and why, and how many runs executed something
    changed in it. Nothing was run for what is outside."""
    runs = "" if each.part is None else f"executed in {counted(each.runs, 'run')}; "
    what = f"{plain(each.function)}: {runs}{plain(each.part or 'outside')}: {plain(each.why)}"
    if not each.statements:
        return what
    done = f"{each.statements - len(each.not_executed):,} of {each.statements:,}"
    left = named([*map(line_of, each.not_executed)])
    what += f"; changed statements executed: {done}" + f"; not {left}" * bool(left)
    hidden = named(each.not_seen, 3)
    return what + (
        f"; operands of changed conditions that were not both true and false: {hidden}"
        * bool(hidden)
    )


def ran(gate: Gate) -> str:
    """What was run."""
    if not (gate.ran.traces or gate.ran.sampled):
        return "nothing"
    return (
        f"on each side {counted(gate.ran.traces, 'recorded run')} and "
        f"{counted(gate.ran.sampled, 'random run')} of vLLM's scheduler, "
        f"{counted(gate.ran.steps, 'step')} in all"
    )


def facts(gate: Gate) -> list[tuple[str, str]]:
    """What was compared, and how: labels and texts."""
    rows = [
        ("changed", changed(gate)),
        ("ran", ran(gate)),
        ("effect", effect(gate)),
        ("base too", _of_both(gate)),
        ("trust", _trust(gate)),
        ("took", took(gate)),
    ]
    return [*trees(gate), *((label, text) for label, text in rows if text)]


def _of_both(gate: Gate) -> str:
    """How many defects base has too; empty where none was seen."""
    still = len(of_kind(gate, "still there"))
    return f"{counted(still, 'defect')}, no reason to refuse it; --json lists them" * bool(still)


def _trust(gate: Gate) -> str:
    """How many real defects this gate finds; empty where nothing is claimed."""
    one = gate.found
    if one is UNSET:
        return ""
    return (
        f"of {one.of} real defects, every third of a list that its authors had, the gate found "
        f"{one.found} ({plain(one.part)}, {plain(one.date)}); of changes that nobody here has seen "
        "expect fewer"
    )


def took(gate: Gate) -> str:
    """The time and the seed."""
    return (
        f"{gate.seconds:.1f} s, of at most {gate.budget_s:.0f} s; the same seed ({gate.seed}) and "
        "the same trees give the same run"
    )
