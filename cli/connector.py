"""`kvproof connector`: random episodes of a KV connector, on the real scheduler of vLLM.

Exit code 0 if every check of the contract was kept, 1 if one was broken, 3 if nothing was judged.
What a known finding of vLLM explains is counted by its name, and the search goes on.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvproof.cli import parser as options
from kvproof.cli.finish import File, finish
from kvproof.cli.machines import borrow
from kvproof.gate.difference.judged import Break
from kvproof.gate.side.known_plans import RUNS_KEPT, Drives, Likeness, likeness
from kvproof.live.availability import importable
from kvproof.live.contract.lookup import last_line
from kvproof.model import interruption
from kvproof.model.counted import counted
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown as shown_path
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.traces.lines import NamedConnector
from kvproof.model.traces.trace import PlanRun, write_in
from kvproof.reports import live_line
from kvproof.reports.document import of_finding, plain
from kvproof.reports.live_line import progress
from kvproof.reports.screen import say
from kvproof.reports.terminal import shell_word
from kvproof.strategies.verdict import INTERRUPTED, Verdict

if TYPE_CHECKING:
    from kvproof.gate.connectors.search import PlanSearch
    from kvproof.live.connectors.subject import TestedConnector

EXTRA_BYTES_MAX = 100_000

NOTHING_JUDGED = "the connector promised no load, so nothing of its loads was judged"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof connector` to its parser."""
    parser.add_argument(
        "name",
        metavar="CONNECTOR",
        help="a name that vLLM has registered, one of reports/connectors.md, module:Class, or "
        "FILE.py:Class",
    )
    parser.add_argument(
        "--extra",
        metavar="JSON",
        default="{}",
        help="kv_connector_extra_config; {tmp} in a text is a folder that is new in each episode "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--keeps-prompts",
        action="store_true",
        help="the connector stores each whole block of a computed prompt and never forgets it",
    )
    parser.add_argument(
        "--examples",
        type=options.at_least_one,
        default=200,
        metavar="N",
        help="number of random episodes (default: %(default)s)",
    )
    options.add_vllm(parser)
    options.add_traces(parser)


def run(args: argparse.Namespace) -> int:
    """Search, and print the result."""
    named = NamedConnector(args.name, _extra(args.extra), args.keeps_prompts)
    subject = _subject(args, named)
    from kvproof.gate.connectors.alone import confirm
    from kvproof.gate.connectors.search import PlanSearch, search

    drives = _drives(subject)

    def known_to(breaks: list[Break]) -> dict[str, str]:
        return {check: one.name for check, one in _like(drives, breaks).items() if one.at_work}

    found = PlanSearch()
    with (
        interruption.stoppable() as stopped,
        _makes(named, found),
        progress("connector: {} episodes, {} steps") as show,
    ):
        search(subject, args.examples, args.seed, found=found, progress=show, known=known_to)
        confirm(subject, found)
    files = []
    if found.played is not None:
        files.append(_plan_file(args, named, found))
    return _answer(args, named, subject, found, files, interrupted=bool(stopped))


def replay(args: argparse.Namespace, planned: PlanRun, plan: ConnectorPlan) -> int:
    """Play the plan of a file, and print what it breaks."""
    named = planned.connector
    assert named is not None
    if named.needs_trust and not args.trust:
        raise UsageError(
            f"{shown_path(args.trace)} names {named.name} with settings of its own, and Python may "
            "import what it names. Use --trust if you know where the file is from."
        )
    subject = _subject(args, named)
    from kvproof.gate.connectors.search import PlanSearch
    from kvproof.gate.side.connector_plans import PlayedPlan

    found = PlanSearch(fail_on=args.fail_on)
    with interruption.stoppable() as stopped, _makes(named, found, tried=True):
        played = PlayedPlan(subject.name, subject, plan)
        seen = planned.finding is not None and not plan.actions  # the search made others
        if played.unmade is not None and not seen:
            raise played.unmade
        found.take(played)
    return _answer(args, named, subject, found, [], interrupted=bool(stopped))


def _subject(args: argparse.Namespace, named: NamedConnector) -> "TestedConnector":
    """Return the connector of this name. Raises UsageError where there is no vLLM, or no such
    connector."""
    borrow(args.vllm, args.cache, live=True)
    from kvproof.live.connectors.shipped import as_driven

    importable()
    live_line.show("importing vLLM ...")
    subject = as_driven(named.name, named.extra, named.keeps_prompts)
    sys.path.append(os.getcwd())  # a module of the user is looked for here too
    subject.kind  # noqa: B018 (raises UsageError)
    return subject


@contextmanager
def _makes(named: NamedConnector, found: "PlanSearch", *, tried: bool = False) -> Iterator[None]:
    """Say as an error of the user that a connector cannot be made with any cache groups; it was
    `tried` with those of a plan alone."""
    from kvproof.live.blame import is_ours

    try:
        yield
    except Exception as error:
        if not (tried or error in found.unmade.values()) or is_ours(error):
            raise
        raise _not_made(named.name, error) from error


def _answer(
    args: argparse.Namespace,
    named: NamedConnector,
    subject: "TestedConnector",
    found: "PlanSearch",
    files: Sequence[File],
    *,
    interrupted: bool,
) -> int:
    """Print what was found, and write its plan. Returns the exit code."""
    unknown = interrupted or found.nothing_judged
    verdict = Verdict.VIOLATED if found.rule else Verdict.UNKNOWN if unknown else Verdict.SAMPLED
    like = _like(_drives(subject), found.played.first()) if found.played is not None else {}
    return finish(
        args,
        verdict.exit_code,
        lambda: _output(args, named, found, verdict, like, files),
        lambda: _print(subject, found, like, interrupted=interrupted and not found.rule),
        files,
    )


def _output(
    args: argparse.Namespace,
    named: NamedConnector,
    found: "PlanSearch",
    verdict: Verdict,
    like: Mapping[str, Likeness],
    files: Sequence[File],
) -> dict[str, Any]:
    """Return the fields of `--json`."""
    fields: dict[str, Any] = {"verdict": verdict, "connector": named.name, "seed": args.seed}
    if verdict is Verdict.UNKNOWN:
        fields["reason"] = NOTHING_JUDGED if found.nothing_judged else INTERRUPTED
    counts = ("episodes", "tries", "steps", "judged", "tolerated", "known")
    fields |= {name: getattr(found, name) for name in counts}
    if found.played is not None:
        first = found.breaks[0]
        fields |= {
            "findings": [
                {**plain(each.finding), **_as_told(like.get(each.signature.check, Likeness()))}
                for each in found.played.first()
            ],
            **of_finding(first.finding),
            "plan": found.played.plan,
            "at": first.at,
            "needs_earlier_episodes": found.needs_earlier,
            "plan_file": files[0].path if files else None,
        }
    return fields


def _print(
    subject: "TestedConnector",
    found: "PlanSearch",
    like: Mapping[str, Likeness],
    *,
    interrupted: bool,
) -> None:
    from kvproof.gate.connectors.shown import shown

    if interrupted:
        say(f"UNKNOWN: interrupted after {counted(found.episodes, 'episode')}.")
    for line in shown(subject, found):
        if not (interrupted and line.startswith(("SAMPLED", "UNKNOWN"))):
            say(line)
    for rule, one in like.items():
        if one.at_work:
            say(f"Known: {rule} is {one.name} (findings/ has what it is).")
        elif one.name:
            say(
                f"New: {rule} looks like {one.name} (findings/ has what it is), but the cause "
                "of that was not seen to be at work in this plan."
            )


def _not_made(name: str, error: Exception) -> UsageError:
    """Return the error that a connector cannot be made with any cache groups."""
    from kvproof.live.death import place

    last = place(error)
    return UsageError(
        f"{name} cannot be made ({last_line(error)}; {Path(last.filename).name}, line "
        f"{last.lineno}). Use settings (--extra) with which vLLM makes it, or mend it."
    )


def _extra(text: str) -> dict[str, object]:
    try:
        made = json.loads(text[:EXTRA_BYTES_MAX])
    except ValueError as error:
        raise UsageError(
            f'--extra is no JSON ({error}). Use an object, such as \'{{"path": "{{tmp}}"}}\'.'
        ) from error
    if not isinstance(made, dict):
        raise UsageError("--extra is no JSON object. Use {} or an object with the settings.")
    return made


def _drives(subject: "TestedConnector") -> Drives:
    """Drive plans with this connector, each once, and return what they show."""
    from kvproof.gate.side import connector_plans

    return lru_cache(RUNS_KEPT)(partial(connector_plans.shown, subject))


def _like(drives: Drives, breaks: Sequence[Break]) -> dict[str, Likeness]:
    """Return the checks of these breaks, each with the finding that explains all of its breaks, or
    else with what the first break that is new looks like."""
    like: dict[str, Likeness] = {}
    for each in breaks:
        check = each.signature.check
        if like.get(check, Likeness(at_work=True)).at_work:
            like[check] = likeness(each, drives)
    return like


def _as_told(like: Likeness) -> dict[str, str]:
    """Return the field of a broken rule that has this finding."""
    return {"known" if like.at_work else "looks_like": like.name} if like.name else {}


def _plan_file(args: argparse.Namespace, named: NamedConnector, found: "PlanSearch") -> File:
    from kvproof.live.availability import installed

    assert found.played is not None
    plan, finding = found.played.plan, found.breaks[0].finding
    planned = PlanRun(plan, named, finding, seed=args.seed, vllm=installed())
    return File(
        lambda: write_in(args.traces, f"connector-{found.rule}-{args.seed}", planned),
        partial(_replay_line, args, named),
        first=True,
    )


def _replay_line(args: argparse.Namespace, named: NamedConnector, at: Path) -> str:
    """Return the line with the command that replays a plan on the vLLM of this search."""
    words = ["--trust"] * named.needs_trust
    words += ["--vllm", str(args.vllm)] if args.vllm is not None else []
    words += ["--cache", str(args.cache)] if args.cache is not None else []
    return " ".join(("Replay it: kvproof replay", shell_word(at), *map(shlex.quote, words)))
