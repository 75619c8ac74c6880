"""`kvproof campaign`: a long search in work units, on processes of this machine or on Ray.

The same seed and number of units give the same result with any number of workers.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kvproof.campaign import planned
from kvproof.campaign.campaign import Campaign
from kvproof.campaign.figures import figures, lines, name
from kvproof.campaign.folder import (
    FINDINGS,
    CampaignFolder,
    CampaignSettings,
    CampaignState,
    entries_of,
)
from kvproof.campaign.plan import MEAN_STEPS, Plan
from kvproof.campaign.processes import Processes, Work, WorkerPool, work
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import CorpusEntry, FoundRun
from kvproof.cli import parser as options
from kvproof.cli.answer import recorded
from kvproof.cli.finish import finish
from kvproof.cli.machines import Maker, borrow, maker, require_core
from kvproof.gate.side.plans import written
from kvproof.invariants.registry import severity_of
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.fault import Fault, replaced_by
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.reading import shown
from kvproof.reports import live_line
from kvproof.reports.screen import say
from kvproof.strategies.verdict import INTERRUPTED, Verdict

UNITS = 1_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof campaign` to its parser."""
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder of the campaign"
    )
    parser.add_argument("--resume", action="store_true", help="continue the campaign in the folder")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--units",
        type=options.at_least_one,
        metavar="N",
        help=f"number of work units, of about {MEAN_STEPS} steps each (default: {UNITS:,})",
    )
    length.add_argument(
        "--steps", type=options.at_least_one, metavar="N", help="about so many steps instead"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=options.at_least_one,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="number of processes on this machine (default: one for each core)",
    )
    where.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="work on a Ray cluster: the one at this address, or a new one on this machine",
    )
    parser.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="FOLDER",
        help="begin with the corpus of this campaign, for example of an earlier release",
    )
    options.add_machine(parser)
    options.add_fault(parser)
    options.add_vllm(parser)
    options.add_fail_on(parser)


def run(args: argparse.Namespace) -> int:
    """Run the campaign, and print what it gave."""
    begin = time.monotonic()
    live_line.show("campaign: preparing ...")
    faults = tuple(fault_named(name) for name in args.fault)
    replaced_by(faults)
    live = args.machine == "live"
    given = entries_of(args.given) if args.given else []
    borrow(args.vllm, args.cache, live=live)
    machine = maker(args.machine, faults)
    if live:
        require_core()
    settings = CampaignSettings(
        machine=args.machine,
        vllm=machine.vllm,
        seed=args.seed,
        faults=tuple(args.fault),
        given=len(given),
    )
    folder = CampaignFolder(args.out)
    if args.resume:
        progress, results = folder.resume(settings)
    else:
        progress, results = folder.begin(settings), {}
    last = args.units or (-(-args.steps // MEAN_STEPS) if args.steps else UNITS)

    campaign = Campaign(
        folder,
        settings,
        Plan(args.seed, live, given),
        progress,
        results,
        lambda found: _trace(folder, settings, machine, faults, found),
    )
    pools: list[WorkerPool] = []
    # Ray prints what nodes do on standard output, which is for the answer.
    with (
        redirect_stdout(sys.stderr),
        interruption.stoppable() as stopped,
        closing(_pool(args, machine, faults)) as pool,
    ):
        pools.append(pool)
        campaign.run(pool, last, _show(name(figures(CampaignState(settings, progress))), last))
    return _answer(args, CampaignState(settings, progress), pools, last, bool(stopped), begin)


def _pool(args: argparse.Namespace, machine: Maker, faults: tuple[Fault, ...]) -> WorkerPool:
    if args.ray is not None:
        from kvproof.campaign.on_ray import OnRay

        return OnRay(args.ray, partial(_work, args.machine, args.fault, args.vllm, args.cache))
    with suppress(AdapterDrift):  # a unit says so
        machine.search(Plan(args.seed, False).cluster(0))  # imports what all units need
        if args.machine == "live":
            planned.warm()
    return Processes(args.workers, work(machine.search, faults, machine.met))


def _work(name: str, faults: list[str], vllm: str | None, cache: Path | None) -> Work:
    """Return the work of a process that was not forked from this one."""
    borrow(vllm, cache, live=name == "live")
    chosen = tuple(map(fault_named, faults))
    machine = maker(name, chosen)
    return work(machine.search, chosen, machine.met)


def _trace(
    folder: CampaignFolder,
    settings: CampaignSettings,
    machine: Maker,
    faults: tuple[Fault, ...],
    found: FoundRun,
) -> str:
    """Write the trace or the plan of a new finding, and say so. Returns its path in the folder."""
    finding, entry = found.found.finding, found.entry
    if isinstance(entry, CorpusEntry):
        trace = recorded(entry.cluster, entry.events, finding, faults, machine, settings.seed)
        path = folder.write_finding(trace)
    else:
        path = written(entry, finding, found.signature.check, folder.path / FINDINGS)
    say(f"found {found.signature.words}: {finding.sentence} ({shown(path)})", file=sys.stderr)
    return str(path.relative_to(folder.path))


def _show(what: str, last: int) -> Callable[[Progress], None]:
    """Return a function that shows the progress on standard error."""

    def show(now: Progress) -> None:
        text = (
            f"campaign of {what}: {now.units:,} of {last:,} units, {now.steps:,} steps, "
            f"{len(now.corpus):,} kept, {len(now.found)} findings"
        )
        live_line.show(text)

    return show


def _answer(
    args: argparse.Namespace,
    state: CampaignState,
    pools: list[WorkerPool],
    last: int,
    stopped: bool,
    begin: float,
) -> int:
    progress, given = state.progress, figures(state)
    reason = ""
    if stopped or progress.units < last:
        reason = INTERRUPTED
    elif progress.errors:
        reason = f"{len(progress.errors)} units did not end: {next(iter(progress.errors))}"
    elif not progress.runs:
        reason = next(iter(progress.undriven), "nothing was driven")
    verdict = Verdict.VIOLATED if progress.found else Verdict.UNKNOWN if reason else Verdict.SAMPLED
    severities = [severity_of(each.found.finding) for each in progress.found]
    grave = any(each is None or each <= args.fail_on for each in severities)
    code = int(grave) or (3 if reason else 0)
    seconds = time.monotonic() - begin

    def output() -> dict[str, Any]:
        return {
            "verdict": verdict,
            "reason": reason,
            "seconds": round(seconds, 3),
            "folder": args.out,
            "workers": sum(pool.size for pool in pools),
            "lost_workers": sum(sum(pool.losses.times.values()) for pool in pools),
            "figures": given,
        }

    def text() -> None:
        for line in lines(given):
            say(line)
        why = f": {reason.rstrip('.')}" if reason else ""
        again = " (--resume goes on)" if reason == INTERRUPTED else ""
        say(
            f"{verdict.value}{why}{again} - {name(given)}, {progress.units:,} of {last:,} units, "
            f"{progress.steps:,} steps ({seconds:.1f} s)"
        )
        say(f"kvproof report {shown(args.out)} says this again.")

    return finish(args, code, output, text)
