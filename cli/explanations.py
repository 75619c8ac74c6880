"""This module explains each name that kvproof prints, and what comes from a pull request or an
issue of vLLM.

All of it is where the name is declared: in the sentence there, and in the docstring.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

from kvproof.gate.side.known_plans import plans
from kvproof.invariants.check import Check
from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.invariants.registry import CHECKS, FORMER, checks_of
from kvproof.live.contract.features import FEATURES as OF_CONTRACT
from kvproof.live.known.registry import KNOWN
from kvproof.live.known.traces import FOLDER
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import FEATURES, modelled, section_of
from kvproof.model.errors import NAME_MAX, UsageError, alike
from kvproof.model.events import Choice, Event
from kvproof.model.facts.connectors import Fact
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.reading import read_text
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.model.severity import MEANINGS, Severity
from kvproof.proofs.prove import everything, everything_named
from kvproof.reports.terminal import shell_word
from kvproof.reports.trace.engines import cluster_line
from kvproof.reports.trace.functions import FUNCTIONS
from kvproof.reports.trace.words import WORDS
from kvproof.strategies.count_conformance import CONFORMANCE
from kvproof.strategies.joined import JOIN_CHECKS
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import breaking
from kvproof.watch.shown import NOT_JUDGED

NEAR = 3
"""The number of names that are suggested for a name that does not exist."""

PAGE_SIZE_MAX_MIB = 4

THREAD = re.compile(r"(?:vllm)?#?(?P<number>\d{3,9})")
"""A pull request or an issue of vLLM, as a user may write it."""


class Explanation(NamedTuple):
    """What a name stands for. A field that says nothing is empty. `scenario` has the paragraphs of
    its story. `where` says where a check is judged, or a fault shows. `breaks` are invariants and
    guards that a fault or a finding breaks, `faults` and `findings` are those that break a check.
    `see` are commands."""

    kind: str
    name: str
    sentence: str
    severity: str = ""
    origin: str = ""
    scenario: tuple[str, ...] = ()
    where: str = ""
    breaks: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    page: str = ""
    see: tuple[str, ...] = ()


def explanations(name: str) -> Iterator[Explanation]:
    """Return what has this name. Raises UsageError with the nearest names if nothing has."""
    thread = THREAD.fullmatch(name)
    if thread is not None:
        return iter(_of_thread(thread["number"]))
    found = [kind.explain for kind in KINDS.values() if name in kind.names()]
    if not found:
        near = alike(name, every_name(), NEAR)
        if name in FORMER:
            near = [FORMER[name]]
        hint = " or ".join(near) or (f"a name that kvproof explain KIND lists, with {_kinds()}")
        raise UsageError(f"Nothing in kvproof is named {name[:NAME_MAX]!r}. Use {hint}.")
    return (explain(name) for explain in found)


def _kinds() -> str:
    *first, last = KINDS
    return f"{', '.join(first)} or {last}"


def _of_thread(number: str) -> list[Explanation]:
    """Return what has this pull request or issue as its origin."""
    every = (kind.explain(name) for kind in KINDS.values() for name in kind.names())
    found = [each for each in every if re.search(rf"#{number}\b", each.origin)]
    if not found:
        raise UsageError(
            f"Nothing in kvproof comes from vllm#{number}. Use a number that kvproof explain "
            "invariants or kvproof explain faults lists."
        )
    return found


def every_name() -> list[str]:
    """Return all names that are explained."""
    return sorted({each for kind in KINDS.values() for each in kind.names()})


class Asked(NamedTuple):
    """Where checks of facts of these kinds are asked."""

    kinds: tuple[type, ...]
    where: str
    see: str


ASKED = (
    Asked(
        get_args(Fact),
        "judged of a connector that kvproof drives, also by kvproof gate",
        "kvproof connector NAME",
    ),
    Asked(
        (Startup,),
        "judged of each engine that kvproof gate starts with random layers and memory",
        "kvproof gate --repo . --base main --head HEAD",
    ),
    Asked(
        (Played,),
        "judged of each engine whose loop kvproof gate runs with random messages",
        "kvproof gate --repo . --base main --head HEAD",
    ),
)

AROUND = {
    check.id: check
    for asked in ASKED
    for check in checks_of(*asked.kinds)
    if check.id not in CHECKS
}
"""The checks of what is around the scheduler alone, by id."""


def _invariant(name: str) -> Explanation:
    """Explain an invariant or a guard of a step, a check of what is around the scheduler, or a
    claim about bytes."""
    one = CHECKS.get(name) or AROUND.get(name)
    if one is None:
        return _bytes(name)
    also = [asked for asked in ASKED if not set(asked.kinds).isdisjoint(one.judged)]
    faults = tuple(each.name for each in breaking(one))
    findings = [
        each.name for each in KNOWN.values() if any(s.check == name for s in each.signatures)
    ]
    see = [f"kvproof explore --fault {each}" for each in faults[:1]]
    see += [_report(each) for each in findings[:1] if not see]
    see += [each.see for each in also if name in AROUND]
    return Explanation(
        kind=_kind(one),
        name=name,
        sentence=f"It must be true that {one.name}.",
        severity=one.severity.words,
        origin=one.origin,
        scenario=_paragraphs(one.story),
        where="; ".join((*_judged_in_runs(one), *(each.where for each in also))),
        faults=faults,
        findings=tuple(findings),
        see=tuple(see or ["kvproof sample --machine live"]),
    )


def _judged_in_runs(one: Check) -> Iterator[str]:
    """Say where a check of runs is judged."""
    if one.id not in CHECKS:
        return
    when = "at the end of a run, and on graphs of states"
    yield (
        f"judged {when if one.kind == 'eventually' else 'after every step'}, on the model and on "
        "driven vLLM"
    )
    if one.id in NOT_JUDGED:
        yield f"not by the sanitizer ({NOT_JUDGED[one.id].rstrip('.').replace('It', 'it', 1)})"
    else:
        yield "and by the sanitizer"
    if one.id in JOIN_CHECKS:
        yield "and by kvproof report P D"


def _bytes(name: str) -> Explanation:
    return Explanation(
        kind="what must be true of the bytes of blocks",
        name=name,
        sentence="Only the worker of a real engine has bytes: no search and no fault breaks it.",
        severity=SEVERITIES[name].words,
        where="judged by the sanitizer where KVPROOF_BYTES=1 is set, and by kvproof report P D",
        see=("KVPROOF=raise KVPROOF_BYTES=1 vllm serve MODEL",),
    )


def _fault(name: str) -> Explanation:
    one = FAULTS[name]
    return Explanation(
        kind="a fault, a historical mistake that the model can be given",
        name=name,
        sentence=f"The mistake: {one.mistake}.",
        severity=_gravest(one.breaks),
        origin=one.origin,
        scenario=_paragraphs(one.story),
        breaks=one.breaks,
        where=f"the preset {', '.join(one.clusters)}; it replaces {' and '.join(one.replaces)}",
        see=(f"kvproof explore --fault {name}",),
    )


MISSING = "which has no page in findings/ yet"


EXPLAINED = FOLDER / "explained.md"


@cache
def _explained() -> dict[str, tuple[str, str]]:
    """Return where each finding without a page of its own shows, and what is known of it."""
    if not EXPLAINED.exists():
        return {}
    page = read_text(EXPLAINED, "page", PAGE_SIZE_MAX_MIB)
    rows = (line.split("|") for line in page.splitlines() if line.startswith("| `"))
    return {name.strip(" `"): (where.strip(), what.strip()) for _, name, where, what, _ in rows}


def _without_page(name: str) -> Explanation:
    where, what = _explained()[name]
    breaks = {plan.check: None for of, plan in plans() if of == name}
    return Explanation(
        kind="what is known of vLLM, and counted, without a page of its own",
        name=name,
        sentence=f"{where}: {what}.",
        severity=_gravest(breaks),
        origin=", ".join(re.findall(r"\S+#\d+", what)),
        breaks=tuple(breaks),
        page=_path(EXPLAINED),
        see=tuple(f"kvproof explain {each}" for each in breaks),
    )


def _finding(name: str) -> Explanation:
    if name in _explained():
        return _without_page(name)
    known = KNOWN.get(name)
    checks = sorted({each.check for each in known.signatures}) if known else []
    pages = (FOLDER / name / each for each in ("issue.md", "README.md"))
    page = next((each for each in pages if each.exists()), None)
    if known:
        sentence = f"In vLLM, {known.says}."
    else:
        assert page is not None  # such a finding is known by its page
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
        scenario=tuple(filter(None, (cluster_line(file.cluster), states, *_apart(file.cluster)))),
        see=(f"kvproof {machine} --config {name}", f"kvproof explain {name} --json"),
    )


def random_cluster(name: str) -> Explanation:
    """Explain a cluster that a seed makes."""
    cluster = cluster_named(name)
    machine = "explore" if modelled(cluster) else "sample --machine live"
    return Explanation(
        kind="a cluster that a seed makes",
        name=name,
        sentence="The same seed makes the same cluster, in this kvproof.",
        scenario=(cluster_line(cluster), *_apart(cluster)),
        see=(f"kvproof {machine} --config {name}", f"kvproof explain {name} --json"),
    )


def _apart(cluster: Cluster) -> Iterator[str]:
    """Say which start-ups of vLLM do not make this cluster."""
    if any(engine.drafter_is_apart for engine in cluster.engines):
        yield (
            "No start-up of vLLM 0.32.0 with an EAGLE head makes these cache groups: it marks none "
            "of them as the drafter's, and then takes all for the drafter's (vllm#54094). One with "
            "an MTP drafter marks its group."
        )


def _findings() -> Collection[str]:
    return {*KNOWN, *_explained(), *_with("issue.md")}


def _with(page: str) -> set[str]:
    """Return the findings that have a page of this name."""
    return {path.parent.name for path in FOLDER.glob(f"*/{page}")}


def _counted() -> str:
    """Count what was found, with a page of its own and without."""
    pages = {*_with("issue.md"), *_with("README.md")}
    return f"{len(pages)} with a page in findings/, {len({*_findings()} - pages)} without"


def _gravest(checks: Iterable[str]) -> str:
    """Name the gravest severity of these checks."""
    every = CHECKS | AROUND
    severities = [every[name].severity for name in checks if name in every]
    known = [each for each in severities if each is not None]
    return min(known).words if known else ""


def _paragraphs(text: str | None) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", (text or "").strip()))


def _kind(check: Check) -> str:
    if check.kind == "guard":
        return "a guard of the spec, which every step must keep"
    if check.ideal:
        return "an ideal, which no engine fully keeps: only pairs of base and head are judged by it"
    return "an invariant" if check.id in CHECKS else "an invariant of what is around the scheduler"


def _report(name: str) -> str:
    return f"kvproof report {shell_word(Path(_path(FOLDER / name / 'trace.jsonl')))}"


def _path(path: Path) -> str:
    """Return the path, from the working folder if it is in it."""
    near = os.path.relpath(path.resolve())
    return str(path.resolve()) if near.startswith("..") else near


def _obligation(name: str) -> Explanation:
    one = everything_named(name)
    fault = getattr(one, "killed_by", "")
    refutes = f"; kvproof prove --fault {fault} refutes it" if fault in FAULTS else ""
    return Explanation(
        kind="an obligation, which Z3 proves for all sizes",
        name=name,
        sentence=f"It must be true that {one.name}.",
        origin=getattr(one, "origin", ""),
        where=f"proved by kvproof prove{refutes}",
        see=(f"kvproof prove --obligation {name}",),
    )


def _conformance(name: str) -> Explanation:
    return Explanation(
        kind="what connects the model to the proofs",
        name=name,
        sentence="A step of the model, projected to counts, is a transition of a system whose "
        "claims are proved for all sizes (reports/obligations.md says which are not projected).",
        where="asked by kvproof explore of each step of the model",
        see=("kvproof explore",),
    )


def _feature(name: str) -> Explanation:
    if name not in FEATURES:
        return _of_contract(name)
    one = FEATURES[name]
    return Explanation(
        kind=f"a feature of clusters ({section_of(one)})",
        name=name,
        sentence=f"{one.words[:1].upper()}{one.words[1:]}.",
        where=one.options,
        see=("kvproof doctor", "kvproof sample --machine live"),
    )


def _of_contract(name: str) -> Explanation:
    one = OF_CONTRACT[name]
    needs = f", which needs {' and '.join(one.needs)}" if one.needs else ""
    return Explanation(
        kind="a part of vLLM that kvproof doctor lists",
        name=name,
        sentence=f"{one.what[:1].upper()}{one.what[1:]}{needs}.",
        where="looked up in the vLLM that is driven",
        see=("kvproof doctor",),
    )


def _severity(name: str) -> Explanation:
    one = BY_SEVERITY[name]
    return Explanation(
        kind="a severity: the worst that a check guards against, whatever one run shows",
        name=name,
        sentence=f"A check of this severity guards against {MEANINGS[one]}.",
        where=f"--fail-on {one.option} fails a run from this severity on",
        see=(f"kvproof explore --fail-on {one.option}",),
    )


def _word(name: str) -> Explanation:
    return Explanation(
        kind="a word of a printed trace, or of the line of a verdict",
        name=name,
        sentence=f"{WORDS[name][:1].upper()}{WORDS[name][1:]}.",
        see=("kvproof report TRACE",),
    )


EVENTS = {each.__name__: each for each in (*get_args(Event), *get_args(Choice))}


def _event(name: str) -> Explanation:
    return Explanation(
        kind="an event of a run, or what a step chooses",
        name=name,
        sentence=_paragraphs(EVENTS[name].__doc__)[0],
        where=f"in vLLM, {' and '.join(FUNCTIONS[name])}",
        see=("kvproof report TRACE",),
    )


def _functions() -> list[str]:
    return sorted({each for called in FUNCTIONS.values() for each in called})


def _function(name: str) -> Explanation:
    events = [event for event, called in FUNCTIONS.items() if name in called]
    return Explanation(
        kind="a function of vLLM",
        name=name,
        sentence=f"A printed trace names it at {', '.join(events)}.",
        see=tuple(f"kvproof explain {event}" for event in events),
    )


BY_SEVERITY = {name: each for each in Severity for name in (each.words, each.option)}


class VerdictMeaning(NamedTuple):
    """What a verdict says, and a command that may end with it."""

    says: str
    command: str


VERDICTS = {
    Verdict.PROVED.value: VerdictMeaning(
        "Z3 found no numbers that break a claim, and there are none in its ranges",
        "kvproof prove",
    ),
    Verdict.EXHAUSTED.value: VerdictMeaning(
        "Every state that this cluster can reach was visited, and every check holds in each",
        "kvproof explore",
    ),
    Verdict.SAMPLED.value: VerdictMeaning(
        "The episodes that were run break no check; others may", "kvproof sample"
    ),
    Verdict.VIOLATED.value: VerdictMeaning(
        "A check does not hold, and a trace shows it", "kvproof explore --fault front_trim"
    ),
    Verdict.UNKNOWN.value: VerdictMeaning(
        "The work was cut or could not be done, so nothing is known; the reason stands beside it",
        "kvproof explore --states-max 5",
    ),
    "COSTS": VerdictMeaning(
        "Head breaks nothing that base keeps, and does the same with more",
        "kvproof gate --repo . --base main --head HEAD",
    ),
    "NO EFFECT": VerdictMeaning(
        "The whole change was executed, and head and base were equal in all that can be seen",
        "kvproof gate --repo . --base main --head HEAD",
    ),
    "UNCHANGED": VerdictMeaning(
        "Head changes no function of the accounting, so nothing was run",
        "kvproof gate --repo . --base main --head HEAD",
    ),
    "DIFFERS": VerdictMeaning(
        "A trace without a finding was replayed, and the machine did otherwise",
        "kvproof replay TRACE",
    ),
}
"""The verdicts of all commands."""


def _verdict(name: str) -> Explanation:
    return Explanation(
        kind="a verdict",
        name=name,
        sentence=f"{VERDICTS[name].says}.",
        page="docs/explanation/verdicts.md",
        see=(VERDICTS[name].command,),
    )


class Kind(NamedTuple):
    """A kind of name: what it is, the names, what explains one, and whether a list of them also
    shows the scenario of each."""

    says: str
    names: Callable[[], Collection[str]]
    explain: Callable[[str], Explanation]
    whole: bool = False


KINDS: dict[str, Kind] = {
    "invariants": Kind(
        "what must be true: of states, of steps (guards), and of what is around the scheduler",
        lambda: [*CHECKS, *AROUND, *SEVERITIES],
        _invariant,
    ),
    "findings": Kind(
        f"what was found in vLLM: {_counted()}", lambda: sorted(_findings()), _finding
    ),
    "faults": Kind("historical mistakes that the model can be given", lambda: FAULTS, _fault),
    "configs": Kind(
        "the preset clusters", lambda: [*CLUSTERS, *LIVE_CLUSTERS], _preset, whole=True
    ),
    "features": Kind(
        "what a cluster may use of vLLM", lambda: list(FEATURES | OF_CONTRACT), _feature
    ),
    "obligations": Kind("claims that Z3 proves for all sizes", everything, _obligation),
    "conformance": Kind(
        "what connects the model to the proofs", lambda: [CONFORMANCE], _conformance
    ),
    "severities": Kind("how grave a check is", lambda: [*BY_SEVERITY], _severity),
    "words": Kind(
        "what stands in a printed trace and in the line of a verdict",
        lambda: WORDS,
        _word,
        whole=True,
    ),
    "events": Kind(
        "the events of a run, and what a step chooses", lambda: EVENTS, _event, whole=True
    ),
    "functions": Kind("the functions of vLLM that a printed trace names", _functions, _function),
    "verdicts": Kind("the words that an answer begins with", lambda: VERDICTS, _verdict),
}
"""Each kind by the name under which `kvproof explain` lists it."""
