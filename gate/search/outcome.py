"""What a comparison found, as the output of `kvproof gate`."""

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from kvproof.gate.difference.order import touched
from kvproof.gate.difference.protocol import Seen
from kvproof.gate.difference.record import COUNTED, COUNTER, Pair
from kvproof.gate.difference.result import severity
from kvproof.gate.difference.workload import Follow, Play
from kvproof.gate.search.comparison import Comparison, Confirmed
from kvproof.gate.search.fresh import Runs
from kvproof.gate.side import plans
from kvproof.gate.source.changes import USED, ChangedFunction, Changes
from kvproof.gate.source.outcomes import line_of
from kvproof.gate.source.statements import place_of
from kvproof.invariants.check import FOUND
from kvproof.live.trees import Tree, fingerprint
from kvproof.model.files.reading import read_bytes
from kvproof.model.severity import Severity
from kvproof.reports.gate_output import (
    Class,
    Gate,
    GateCost,
    GateDifference,
    GateFinding,
    GateFound,
    GateFunction,
    GateLost,
    GatePlace,
    GateRan,
    GateTree,
)

PACKAGE = "vllm/"
"""The folder of the package in a repository."""


class Written(NamedTuple):
    """What was written about an introduced finding: its trace with the events in words, and its
    reproducer; for a connector or an engine core its plan."""

    trace: Path | None = None
    events: tuple[str, ...] = ()
    reproducer: Path | None = None


NOTHING = Written()


class GateOutcome(NamedTuple):
    """All that is known at the end of a comparison. `of_base` is what became of base's findings.
    `seen` is what each side can drive."""

    introduced: Sequence[tuple[Confirmed, Written]] = ()
    of_base: Sequence[tuple[Class, Confirmed]] = ()
    seen: tuple[Seen, Seen] | None = None
    comparison: Comparison | None = None
    not_run: Sequence[str] = ()
    reason: str = ""
    unchanged: bool = False
    costs: Sequence[GateCost] = ()


def output(
    args: argparse.Namespace,
    trees: tuple[Tree, Tree],
    changes: Changes,
    found: GateOutcome,
    seconds: float,
) -> Gate:
    """The output, with the exit code of the verdict."""
    findings = tuple(_findings(args.fail_on, changes, found))
    lost, both = _lost(found.seen), found.comparison
    runs = [(name, pair) for name, _, pair in both.all_pairs()] if both else []
    apart = [name for name, pair in runs if pair.parts_at is not None]
    verdict, reason = _verdict(changes, findings, lost, found, runs)
    functions = tuple(each.key for each in changes.accounting)
    so_far = both.reached_by() if both else set()
    base, head = trees
    return Gate(
        exit_code=_exit_code(args, verdict, findings),
        verdict=verdict,
        seed=args.seed,
        seconds=round(seconds, 3),
        budget_s=float(args.budget),
        base=_tree(base, found, 0),
        head=_tree(head, found, 1),
        changed_functions=functions,
        reached=tuple(each.key for each in changes.accounting if each.ran(so_far)),
        functions=tuple(_functions(changes, both, so_far, {*apart})),
        watched=len(_watched(both)) or (both.looked_at if both else 0),
        ran=_ran(both, len(runs), len(apart)),
        findings=findings,
        costs=tuple(found.costs),
        differs=tuple(_differs(both)),
        lost=lost,
        not_run=tuple(found.not_run),
        found=figure(changes) if verdict in ("SAMPLED", "NO EFFECT", "COSTS") else UNSET,
        reason=reason or UNSET,
    )


def _verdict(
    changes: Changes,
    findings: Sequence[GateFinding],
    lost: Sequence[GateLost],
    found: GateOutcome,
    runs: Sequence[tuple[str, Pair]],
) -> tuple[Any, str]:
    """The verdict and its reason. A finding below --fail-on does not make up for what is not
    known."""
    if any(finding.fails for finding in findings):
        return "VIOLATED", ""
    if found.unchanged:
        return "UNCHANGED", found.reason
    if lost:
        names = ", ".join(f"{each.entry} (for {each.feature})" for each in lost)
        return "UNKNOWN", f"kvproof drives base and not head: head has no {names}"
    if found.reason:
        return "UNKNOWN", found.reason
    kinds = {finding.kind for finding in findings}
    if "introduced" in kinds:
        return "VIOLATED", ""
    if found.costs or "costs" in kinds:
        return "COSTS", ""
    return ("NO EFFECT" if _had_no_effect(found.comparison, changes, runs) else "SAMPLED"), ""


def _had_no_effect(
    comparison: Comparison | None, changes: Changes, runs: Sequence[tuple[str, Pair]]
) -> bool:
    """Whether base and head were equal in every run, in runs that execute each change."""
    if comparison is None or not any(pair.comparable for _, pair in runs):
        return False
    if any(pair.parts_at is not None for _, pair in runs):
        return False
    ran = {key for name in {name for name, _ in runs} for key in comparison.reached(name)}
    return all(each.ran_whole(ran) for each in changes.accounting)


def _exit_code(args: argparse.Namespace, verdict: str, findings: Sequence[GateFinding]) -> int:
    if any(finding.fails for finding in findings):
        return 1
    if verdict == "COSTS" and args.fail_on_costs:
        return 1
    return 3 if verdict == "UNKNOWN" or (verdict == "NO EFFECT" and args.strict) else 0


def _watched(
    comparison: Comparison | None, only: Collection[str] | None = None
) -> list[frozenset[str]]:
    """What each watched workload reached, on either side; with `only`, of these names."""
    if comparison is None:
        return []
    sides = comparison.on_base, comparison.on_head
    return [
        comparison.reached(name)
        for name in (comparison.names if only is None else sorted(only))
        if any(side[name].watched or side[name].reached for side in sides)
    ]


def _functions(
    changes: Changes, comparison: Comparison | None, so_far: Collection[str], apart: set[str]
) -> Iterator[GateFunction]:
    """The changed functions: first what is accounting and was not reached, last what is outside.
    The sides part in the workloads `apart`."""
    ours, watched = changes.accounting, _watched(comparison)
    runs = Counter(each.key for called in watched for each in ours if each.ran(called))
    unequal = _watched(comparison, apart)
    effect = Counter(each.key for called in unequal for each in ours if each.ran(called))
    for each in sorted(ours, key=lambda one: min(runs[one.key], 1)):
        places = [place_of(key) for key in each.statements if key not in so_far]
        yield GateFunction(
            function=each.key,
            part=each.part,
            why=each.why,
            runs=runs[each.key],
            effect=effect[each.key],
            statements=len(each.statements),
            not_executed=tuple(line for _, line in places),
            outcomes=len(each.outcomes),
            not_seen=tuple(
                f"{line_of(operand.line)}: {operand.text}"
                for condition in each.conditions
                for operand in condition.unseen(so_far)
            ),
        )
    for each in changes.others:
        yield GateFunction(function=each.key, part=None, why=each.why)


def _findings(fail_on: Severity, changes: Changes, found: GateOutcome) -> Iterator[GateFinding]:
    for confirmed, written in found.introduced:
        grave = severity(confirmed.found) <= fail_on
        yield _finding("introduced", confirmed, changes.accounting, fails=grave, written=written)
    for confirmed in found.comparison.costs if found.comparison else ():
        yield _finding("costs", confirmed, changes.accounting)
    for kind, confirmed in found.of_base:
        yield _finding(kind, confirmed, changes.accounting)
    for workload, still in found.comparison.still_there() if found.comparison else ():
        yield _finding("still there", Confirmed(workload, still, frozenset()), ())


def _finding(
    kind: Class,
    confirmed: Confirmed,
    changed: Sequence[ChangedFunction],
    *,
    fails: bool = False,
    written: Written = NOTHING,
) -> GateFinding:
    found = confirmed.found
    name = found.signature.check
    check = FOUND.get(name)
    names = touched(confirmed.reached, [each.key for each in changed])
    called = [each for each in changed if each.key in names]
    executed = [each for each in called if each.ran(confirmed.reached)]
    return GateFinding(
        kind=kind,
        invariant=name,
        says=check.name if check else "",
        origin=check.origin if check else "",
        severity=severity(found).words,
        signature=found.key.without_facts,
        sentence=found.finding.sentence,
        workload=confirmed.workload,
        cluster=found.cluster.name,
        events=written.events or plans.in_words(found.run("")),
        connector=found.plan.connector if isinstance(found.plan, Play) else None,
        known=found.by or None,
        fails=fails,
        places=tuple(_place(each, confirmed.reached) for each in executed or called),
        trace=str(written.trace) if written.trace else None,
        reproducer=str(written.reproducer) if written.reproducer else None,
        also=tuple(sorted(key.words for key in confirmed.also)),
        parting=confirmed.parting or None,
        excuses=tuple(each.says for each in found.key.excuses),
    )


def _place(function: ChangedFunction, called: Collection[str]) -> GatePlace:
    """Where the change of a function is that a run executes, or begins."""
    lines = {key: place_of(key)[1] for key in function.statements}
    on_head = sorted((key not in called, line) for key, line in lines.items() if line > 0)
    line = on_head[0][1] if on_head else function.line
    return GatePlace(file=PACKAGE + function.file, line=line, function=function.name)


def _tree(tree: Tree, found: GateOutcome, side: int) -> GateTree:
    seen, on = found.seen, found.comparison
    breaks = (on.on_base, on.on_head)[side].keys_broken if on else ()
    return GateTree(
        name=tree.name,
        version=tree.version,
        fingerprint=fingerprint(tree),
        path=str(tree.package.parent) if tree.folders else None,
        not_driven=seen[side].missing if seen else (),
        known_findings=tuple(sorted({key.by for key in breaks if key.by})),
    )


def _lost(seen: tuple[Seen, Seen] | None) -> tuple[GateLost, ...]:
    """The features that base can drive and head cannot."""
    if seen is None or seen[0].failure or seen[1].failure:
        return ()
    before = {each.feature for each in seen[0].missing}
    return tuple(each for each in seen[1].missing if each.feature not in before)


def _ran(comparison: Comparison | None, compared: int, differing: int) -> GateRan:
    if comparison is None or not comparison.names:
        return GateRan(traces=0, sampled=0, steps=0)
    traces = sum(isinstance(comparison.workloads[n], Follow) for n in comparison.names)
    return GateRan(
        traces=traces,
        sampled=len(comparison.names) - traces,
        steps=sum(result.steps for result in comparison.on_head.values()),
        compared=compared,
        differing=differing,
    )


def _differs(comparison: Comparison | None) -> Iterator[GateDifference]:
    """How often each quantity differs; one that is counted in both directions comes once."""
    found = comparison.counted if comparison else Runs()
    for what in (each for each in COUNTED if each not in COUNTER):
        worse, better = found.more[what], found.less[what]
        if worse or better:
            yield GateDifference(what=what, worse=worse, better=better, runs=found.whole)


FILE = Path(__file__).with_name("found.json")
"""How many real defects the gate finds, of every third of a list that its authors had. Of changes
that they have not seen, it finds fewer. `benchmarks/pull_requests/table.py` writes the file. It has
the date, and for each part of vLLM the number of defects that were found, and of those that were
tried."""

FEW = 5
"""Fewer defects in a part of vLLM say nothing of it alone."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `found.json` has."""

    date: str
    parts: dict[str, tuple[int, int]]


def figure(changes: Changes) -> GateFound:
    """The figure of the part of vLLM in which most of the changed functions are, or of all parts
    where that has few defects."""
    measured = msgspec.json.decode(read_bytes(FILE, "table of what was found"), type=Measured)
    changed = Counter(each.part for each in changes.accounting if each.part != USED)
    [(part, _), *_] = changed.most_common(1) or [("", 0)]
    found, of = measured.parts.get(part, (0, 0))
    if of < FEW:
        part = "all parts"
        found, of = map(sum, zip(*measured.parts.values(), strict=True))
    return GateFound(part=part, found=found, of=of, date=measured.date)
