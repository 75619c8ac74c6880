"""`kvproof replay TRACE --releases` says which releases of vLLM show the finding of a trace.

Each release replays the trace in a process of its own, as `kvproof replay --machine live --vllm
X.Y.Z` does; all of them are asked, because a history need not be monotone. Releases that are
missing in the cache folder are installed there. The exit code is 0 if every release has an answer
and 3 if some have none.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.cli.finish import finish
from kvproof.live import children
from kvproof.live.releases import NEWEST, RELEASE, Cache, Failed, cache_folder
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.traces.trace import PlanRun, Trace
from kvproof.model.traces.trace_reader import read_run
from kvproof.reports.screen import say
from kvproof.strategies.verdict import INTERRUPTED, Verdict

REPLAY_S = 300.0
"""Time limit of a replay, in seconds."""

MARKS = {"VIOLATED": "BAD", "SAMPLED": "ok", "UNKNOWN": "?"}
"""How an answer is shown. A question mark is never green."""


class ReleaseAnswer(NamedTuple):
    """Whether a release shows the finding of a trace (VIOLATED), and why that is so."""

    verdict: str
    why: str


class Since(NamedTuple):
    """The first release that shows a finding, and the first good one after the last that does."""

    bad: str | None
    good: str | None


def run(args: argparse.Namespace) -> int:
    """Ask the releases, and print their answers."""
    trace = read_run(args.trace)
    if trace.finding is None:
        raise UsageError(f"{shown(args.trace)} has no finding. Use a trace with a finding.")
    if isinstance(trace, Trace) and trace.faults:
        raise UsageError(
            f"{shown(args.trace)} is of the model with a fault, which no release can be given. "
            "Use the trace of a finding in vLLM."
        )
    wanted = trace.finding.invariant if isinstance(trace, PlanRun) else ""
    versions, cache = in_order(args.releases or NEWEST), Cache(cache_folder(args.cache))
    found = _ask_each(versions, lambda version: _on_release(version, cache, args, wanted))
    unasked = ReleaseAnswer(verdict="UNKNOWN", why=INTERRUPTED)
    answers = {version: found.get(version, unasked) for version in versions}
    unknown = any(each.verdict == "UNKNOWN" for each in answers.values())
    verdict = Verdict.UNKNOWN if unknown else Verdict.SAMPLED
    since = first_bad_and_good(answers)

    def text() -> None:
        for version, each in answers.items():
            say(f"{version:8} {MARKS[each.verdict]:4} {each.why}", hang=14)
        say(f"{trace.finding.invariant}: {_history(answers, since)}" if trace.finding else "")

    return finish(
        args,
        verdict.exit_code,
        lambda: {
            "verdict": verdict,
            "trace": args.trace,
            "first_bad": since.bad,
            "first_good": since.good,
            "releases": answers,
        },
        text,
    )


def in_order(names: Sequence[str]) -> list[str]:
    """Return the requested releases, oldest first. Raises UsageError for what is no release."""
    for name in names:
        if not RELEASE.fullmatch(name):
            raise UsageError(
                f"A release has three numbers, unlike {name!r}. Use --releases {NEWEST[-1]}, or "
                "others like it."
            )
    return sorted(set(names), key=lambda name: tuple(map(int, name.split("."))))


def _ask_each(
    versions: Sequence[str], ask: Callable[[str], ReleaseAnswer]
) -> dict[str, ReleaseAnswer]:
    """Ask the releases, one after the other, and return their answers; after an interruption, those
    that are there. Each is reported on standard error."""
    began = time.monotonic()
    found: dict[str, ReleaseAnswer] = {}
    with interruption.stoppable():
        for version in versions:
            interruption.check()
            found[version] = answer = ask(version)
            done = f"{len(found)} of {len(versions)} after {time.monotonic() - began:.0f} s"
            say(f"{done}: {version}, {answer.why}", file=sys.stderr)
    return found


def _on_release(version: str, cache: Cache, args: argparse.Namespace, wanted: str) -> ReleaseAnswer:
    """Replay a trace on one release, or a plan, which is `wanted` to break a check."""
    try:
        cache.installed(version)
        cache.needed()
    except Failed as failed:
        return ReleaseAnswer(verdict="UNKNOWN", why=str(failed))
    return replayed_alone(args.trace, version, cache.folder, ["--trust"] * args.trust, wanted)


def replayed_alone(
    trace: Path,
    vllm: str | None,
    cache: Path | None,
    more: Sequence[str] = (),
    wanted: str = "",
) -> ReleaseAnswer:
    """Replay a trace on real vLLM in a process of its own, in which no run came before it. `vllm`
    and `cache` are the values of the options of these names, and `more` are further options. What
    breaks another check than the one that is `wanted`, if one is, says nothing of that one."""
    chosen = [] if vllm is None else ["--vllm", vllm]
    where = [] if cache is None else ["--cache", str(cache)]
    words = ["replay", str(trace.absolute()), "--machine", "live", *chosen, *where, *more, "--json"]
    try:
        ran = children.run([sys.executable, "-m", "kvproof", *words], timeout_s=REPLAY_S)
    except subprocess.TimeoutExpired:
        return ReleaseAnswer(verdict="UNKNOWN", why=f"its replay takes more than {REPLAY_S:.0f} s")
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        lines = (ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()
        return ReleaseAnswer(verdict="UNKNOWN", why=lines[-1])
    if wanted and said["verdict"] == "VIOLATED" and wanted not in _broken(said):
        why = f"{said['invariant']} is broken, and {wanted} was not seen"
        return ReleaseAnswer(verdict="UNKNOWN", why=why)
    return ReleaseAnswer(verdict=said["verdict"], why=_why(said))


def _broken(said: dict[str, Any]) -> set[str]:
    """Return the checks that are broken, from what `replay --json` printed."""
    return {said["invariant"], *(each["invariant"] for each in said.get("findings", ()))}


def _why(said: dict[str, object]) -> str:
    """Say why a release gives its answer, from what `replay --json` printed."""
    if said["verdict"] == "VIOLATED":
        reasons = said["reasons"]
        assert isinstance(reasons, list)
        return f"{said['invariant']}: {', yet '.join(dict.fromkeys((reasons[0], reasons[-1])))}"
    return str(said.get("reason") or "followed to the end, and not shown")


def first_bad_and_good(answers: dict[str, ReleaseAnswer]) -> Since:
    """Return the first release that shows the finding, and the first good one after the last that
    does."""
    versions = list(answers)
    bad = [i for i, name in enumerate(versions) if answers[name].verdict == "VIOLATED"]
    if not bad:
        return Since(None, None)
    after = (name for name in versions[bad[-1] :] if answers[name].verdict == "SAMPLED")
    return Since(versions[bad[0]], next(after, None))


def _history(answers: dict[str, ReleaseAnswer], since: Since) -> str:
    if since.bad is None:
        good = any(each.verdict == "SAMPLED" for each in answers.values())
        return "no bad release found" if good else "unknown"
    before = list(answers)[: list(answers).index(since.bad)]
    known = any(answers[name].verdict == "SAMPLED" for name in before)
    first = since.bad if known else f"{since.bad} or earlier"
    return f"bad from {first}, " + (f"good from {since.good}" if since.good else "not good since")
