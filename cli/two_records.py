"""`kvproof report P D`: put the records of a prefill and a decode engine together by request, and
judge what only both show."""

import argparse
from typing import Any, NamedTuple

from kvproof.cli.answer import tolerated_lines
from kvproof.cli.finish import finish
from kvproof.cli.machines import borrow
from kvproof.invariants.registry import gravest, severity_of
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding
from kvproof.model.records.record import Record, read
from kvproof.reports.document import of_outcome
from kvproof.reports.screen import say
from kvproof.strategies.joined import JOIN_CHECKS, NECESSARY, Judged, Trim, judged, sent, took
from kvproof.strategies.verdict import Outcome, Verdict

SHOWN_MAX = 8
"""The largest number of findings that are printed; the others are only counted."""


class JoinResult(NamedTuple):
    """What was judged, and the verdict."""

    judged: Judged
    findings: list[Finding]
    not_judged: dict[str, str]
    outcome: Outcome


def run(args: argparse.Namespace) -> int:
    """Judge, and print the verdict."""
    prefill, decode = read(args.trace), read(args.beside)
    _check_order(args, prefill, decode)
    trim, why = _trim(args, decode)
    try:
        found = judged(prefill, decode, trim, why)
    except AdapterDrift as drift:
        found = judged(prefill, decode, None, drift.why)
    joined = _joined(found)
    return finish(
        args,
        joined.outcome.exit_code(args.fail_on),
        lambda: _output(args, joined),
        lambda: _print(args, joined),
    )


def _check_order(args: argparse.Namespace, prefill: Record, decode: Record) -> None:
    """Raise UsageError where the files were exchanged, or one is not of a pair."""
    if sent(decode) and not sent(prefill) and any(took(prefill)):
        raise UsageError(
            f"{shown(args.trace)} is the record of a decode engine and {shown(args.beside)} that "
            "of a prefill engine. Use the record of the prefill engine first."
        )
    for path, record in ((args.trace, prefill), (args.beside, decode)):
        if record.header.connector is None:
            raise UsageError(
                f"The engine of {shown(path)} has no KV connector. Use the records of a prefill "
                "and a decode engine."
            )
    if len(prefill.header.engine.groups) != len(decode.header.engine.groups):
        raise UsageError(
            "The engines of the two records have different numbers of cache groups. Use the "
            "records of engines of one model."
        )


def _trim(args: argparse.Namespace, decode: Record) -> tuple[Trim | None, str]:
    """Return the function with which the vLLM that wrote the record of D trims block lists, or say
    why it is not known here."""
    wrote = decode.header.versions.vllm
    try:
        borrow(args.vllm, args.cache, live=True)
        from kvproof.live.availability import UNKNOWN_VERSION, installed

        version = installed()
    except UsageError:
        if args.vllm is not None:
            raise
        return None, f"vLLM {wrote}, which trims the lists, is not installed here"
    if version != wrote or version == UNKNOWN_VERSION:
        return None, f"vLLM {wrote} wrote the record, and vLLM {version} is used here"
    try:
        from kvproof.live.driver.nixl import trimmed
    except AdapterDrift as drift:
        return None, drift.why
    return trimmed, ""


def _joined(found: Judged) -> JoinResult:
    findings = gravest(found.findings)
    nothing = {
        name: "there was nothing to judge" for name in JOIN_CHECKS if not found.times_judged[name]
    }
    not_judged = nothing | {n: why for n, why in found.skipped.items() if n in nothing}
    missing = [name for name in NECESSARY if name in not_judged]
    reason = ""
    if not found.requests:
        reason = "no request of D loads from a request of P that both records have"
    elif missing:
        reason = "; ".join(f"{name} was not judged: {not_judged[name]}" for name in missing)
    verdict = Verdict.VIOLATED if findings else Verdict.UNKNOWN if reason else Verdict.SAMPLED
    first = findings[0] if findings else None
    outcome = Outcome(verdict, finding=first, reason="" if findings else reason)
    return JoinResult(found, findings, not_judged, outcome)


def _print(args: argparse.Namespace, joined: JoinResult) -> None:
    found, outcome = joined.judged, joined.outcome
    for finding in joined.findings[:SHOWN_MAX]:
        severity = severity_of(finding)
        grave = f" ({severity.words})" if severity is not None else ""
        say(f"VIOLATED {finding.invariant}{grave}: {finding.sentence}")
    if len(joined.findings) > SHOWN_MAX:
        say(f"and {len(joined.findings) - SHOWN_MAX} more")
    if outcome.verdict is Verdict.UNKNOWN:
        say(f"UNKNOWN: {outcome.reason}")
    elif outcome.verdict is Verdict.SAMPLED:
        say(f"SAMPLED: P and D agree on {found.requests} requests")
    for line in tolerated_lines(outcome, args.fail_on):
        say(line)
    if found.times_judged:
        say(f"judged: {', '.join(f'{name} {n}' for name, n in found.times_judged.items())}")
    for name, why in joined.not_judged.items():
        say(f"not judged: {name} ({why})")


def _output(args: argparse.Namespace, joined: JoinResult) -> dict[str, Any]:
    return {
        **of_outcome(joined.outcome, machine="none", seed=args.seed),
        "requests": joined.judged.requests,
        "judged": joined.judged.times_judged,
        "not_judged": joined.not_judged,
        "findings": joined.findings,
    }
