"""`kvproof explain`: what an invariant, a guard, a fault, a finding or a preset is, and what comes
from a pull request or an issue of vLLM.

All of it is in the file that declares it: in the sentence there, and in the docstring.
"""

import argparse
import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from pathlib import Path

from kvproof.cli.finish import finish
from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.invariants.registry import CHECKS
from kvproof.live.known.registry import KNOWN
from kvproof.live.known.traces import FOLDER
from kvproof.model.errors import NAME_MAX, UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.reading import read_text
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.reports.cluster_line import cluster_lines
from kvproof.reports.output.lists import Explained, Explanation
from kvproof.reports.screen import say
from kvproof.reports.terminal import shell_word
from kvproof.strategies.joined import JOIN_CHECKS
from kvproof.strategies.witnesses import broken_by
from kvproof.watch.shown import NOT_JUDGED

NEAR = 3
"""So many names are offered for one that does not exist."""

PAGE_SIZE_MAX_MIB = 4

NAMED_ALIKE = 2
"""So many things may have one name: a finding, and the fault that puts it into the model."""

THREAD = re.compile(r"(?:vllm)?#?(?P<number>\d{3,9})")
"""A pull request or an issue of vLLM, as a user may write it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The name."""
    parser.add_argument(
        "explained",
        metavar="NAME",
        help="an invariant, a guard, a fault, a finding, a preset, or vllm#NUMBER",
    )


def run(args: argparse.Namespace) -> int:
    """Print what the name stands for. A finding and the fault that puts it into the model have the
    same name, and both are printed."""
    found = tuple(explanations(args.explained))
    return finish(
        args, 0, lambda code: Explained(exit_code=code, explanations=found), lambda: _print(found)
    )


def explanations(name: str) -> Iterator[Explanation]:
    """What has this name. Raises UsageError with the nearest names if nothing has."""
    thread = THREAD.fullmatch(name)
    if thread is not None:
        return iter(_of_thread(thread["number"]))
    found = [explain for names, explain in KINDS if name in names()]
    if not found:
        near = difflib.get_close_matches(name[:NAME_MAX], every_name(), n=NEAR)
        hint = " or ".join(near) or "a name that kvproof invariants, faults or configs lists"
        raise UsageError(
            "There is no invariant, guard, fault, finding or preset named "
            f"{name[:NAME_MAX]!r}. Use {hint}."
        )
    return (explain(name) for explain in found)


def _of_thread(number: str) -> list[Explanation]:
    """What has this pull request or issue as its origin."""
    every = (explain(name) for names, explain in KINDS for name in sorted(names()))
    found = [each for each in every if re.search(rf"#{number}\b", each.origin)]
    if not found:
        raise UsageError(
            f"Nothing in kvproof comes from vllm#{number}. Use a number that kvproof invariants or "
            "faults lists."
        )
    return found


def every_name() -> list[str]:
    """All names that are explained."""
    return sorted({each for names, _ in KINDS for each in names()})


def _print(explained: Collection[Explanation]) -> None:
    """All that is known of one name, or of a finding and its fault; of more, the sentence and a
    command each."""
    for number, each in enumerate(explained):
        if number:
            say()
        beside = ", ".join(filter(None, (each.severity, each.origin)))
        say(f"{each.name}: {each.kind}{f' ({beside})' if beside else ''}")
        if len(explained) > NAMED_ALIKE:
            say(f"  {each.sentence}", hang=2)
            say(f"  See it: {each.see[0]}", hang=0)
            continue
        for text in (each.sentence, *each.scenario):
            say()
            say(f"  {text}", hang=2)
        say()
        for label, text in _more(each):
            say(f"{label}: {text}")
        for command in each.see:
            say(f"See it: {command}", hang=0)


def _more(each: Explanation) -> Iterator[tuple[str, str]]:
    if each.where:
        yield "Where", each.where
    lists = ("Breaks", each.breaks), ("Faults", each.faults), ("Findings", each.findings)
    for label, names in lists:
        if names:
            yield label, ", ".join(names)
    if each.page:
        yield "Page", each.page


# Each kind.


def _check(name: str) -> Explanation:
    one = CHECKS[name]
    guard = one.kind == "guard"
    when = {
        "always": "after every step",
        "guard": "after every step",
        "eventually": "at the end of a run, and on graphs of states",
    }[one.kind]
    sanitizer = (
        f"not by the sanitizer ({NOT_JUDGED[name].rstrip('.').replace('It', 'it', 1)})"
        if name in NOT_JUDGED
        else "and by the sanitizer"
    )
    joined = "; and by kvproof join" if name in JOIN_CHECKS else ""
    faults = [] if guard else [each.name for each in FAULTS.values() if name in broken_by(each)]
    findings = [
        each.name for each in KNOWN.values() if any(s.check == name for s in each.signatures)
    ]
    see = [f"kvproof explore --fault {one.killed_by}"] if one.killed_by in FAULTS else []
    see += [_report(each) for each in findings[:1] if not see]
    return Explanation(
        kind="a guard of the spec, which every step must keep" if guard else "an invariant",
        name=name,
        sentence=f"It must be true that {one.name}.",
        severity=one.severity.words if one.severity else "",
        origin=one.origin,
        scenario=_scenario("model.spec" if guard else "invariants", name),
        where=f"judged {when}, on the model and on driven vLLM; {sanitizer}{joined}",
        faults=tuple(faults),
        findings=tuple(findings),
        see=tuple(see or ["kvproof sample --machine live"]),
    )


def _bytes(name: str) -> Explanation:
    return Explanation(
        kind="what must be true of the bytes of blocks",
        name=name,
        sentence="Only the worker of a real engine has bytes: no search and no fault breaks it.",
        severity=SEVERITIES[name].words,
        where="judged by the sanitizer where KVPROOF_BYTES=1 is set, and by kvproof join",
        see=("KVPROOF=raise KVPROOF_BYTES=1 vllm serve MODEL",),
    )


def _fault(name: str) -> Explanation:
    one = FAULTS[name]
    return Explanation(
        kind="a fault, a historical mistake that the model can be given",
        name=name,
        sentence=f"The mistake: {one.mistake}.",
        severity=_gravest(broken_by(one)),
        origin=one.origin,
        scenario=_paragraphs(one.story),
        breaks=broken_by(one),
        where=f"the preset {', '.join(one.clusters)}; it replaces {' and '.join(one.replaces)}",
        see=(f"kvproof explore --fault {name}",),
    )


MISSING = "which has no page in findings/ yet"


def _finding(name: str) -> Explanation:
    known = KNOWN.get(name)
    checks = sorted({each.check for each in known.signatures}) if known else []
    pages = (FOLDER / name / each for each in ("issue.md", "README.md"))
    page = next((each for each in pages if each.exists()), None)
    if known:
        sentence = f"In vLLM, {known.says}."
    else:
        assert page is not None  # a finding without a deviation is known by its page
        title = read_text(page, "page", PAGE_SIZE_MAX_MIB).splitlines()[0].lstrip("# ")
        sentence = f"{title.removeprefix('[Bug]: ')}."
    recognised = "which a search recognises" if known else ""
    return Explanation(
        kind=", ".join(filter(None, ("a finding in vLLM", recognised, "" if page else MISSING))),
        name=name,
        sentence=sentence,
        severity=_gravest(checks),
        scenario=_paragraphs(known.scenario) if known else (),
        breaks=tuple(checks),
        page=_path(page) if page else "",
        see=(_report(name),) if (FOLDER / name / "trace.jsonl").exists() else (),
    )


def _preset(name: str) -> Explanation:
    file = (CLUSTERS if name in CLUSTERS else LIVE_CLUSTERS).file(name)
    machine = "explore" if name in CLUSTERS else "sample --machine live"
    states = f"{file.distinct_states:,} distinct states." if file.distinct_states else ""
    return Explanation(
        kind="a preset, a small cluster",
        name=name,
        sentence=file.about,
        scenario=tuple(filter(None, (*cluster_lines(file.cluster), states))),
        see=(f"kvproof {machine} --config {name}", f"kvproof configs --show {name}"),
    )


def _findings() -> Collection[str]:
    return {*KNOWN, *(path.parent.name for path in FOLDER.glob("*/issue.md"))}


Kind = tuple[Callable[[], Collection[str]], Callable[[str], Explanation]]

KINDS: tuple[Kind, ...] = (
    (lambda: CHECKS, _check),
    (lambda: SEVERITIES, _bytes),
    (_findings, _finding),
    (lambda: FAULTS, _fault),
    (lambda: [*CLUSTERS, *LIVE_CLUSTERS], _preset),
)
"""The names of each kind, and what explains one."""


def _gravest(checks: Iterable[str]) -> str:
    """The worst that a user may see where these checks do not hold."""
    severities = [CHECKS[name].severity for name in checks if name in CHECKS]
    known = [each for each in severities if each is not None]
    return min(known).words if known else ""


def _scenario(room: str, name: str) -> tuple[str, ...]:
    """The paragraphs of a file's docstring."""
    return _paragraphs(import_module(f"kvproof.{room}.{name}").__doc__ or "")


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _report(name: str) -> str:
    return f"kvproof report {shell_word(Path(_path(FOLDER / name / 'trace.jsonl')))}"


def _path(path: Path) -> str:
    """The path, from the working folder if it is in it."""
    near = os.path.relpath(path.resolve())
    return str(path.resolve()) if near.startswith("..") else near
