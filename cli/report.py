"""`kvproof report`: show a trace, a plan, a record or a campaign in the terminal, or a trace as a
page. Two records, of a prefill and a decode engine, are put together and judged."""

import argparse
import sys
from pathlib import Path

from kvproof.campaign.figures import figures, lines
from kvproof.campaign.folder import CampaignFolder
from kvproof.cli import parser as options
from kvproof.cli import two_records
from kvproof.cli.finish import File, finish
from kvproof.invariants.registry import check_named
from kvproof.live.known.registry import recognised
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.files.writing import write_new
from kvproof.model.records.record import Record, read_either, record_lines
from kvproof.model.traces.trace import PlanRun, Trace, records
from kvproof.reports import record as in_terminal
from kvproof.reports.ledger.of_trace import of_trace, page
from kvproof.reports.screen import say
from kvproof.reports.screen import show as print_lines
from kvproof.reports.shared_tokens import rows_of_record, total
from kvproof.reports.terminal import Extra, finding_lines, shell_word, show
from kvproof.strategies.count_conformance import CONFORMANCE


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof report` to its parser."""
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="a trace, a plan, a record, or the folder of a campaign",
    )
    parser.add_argument(
        "beside",
        type=Path,
        nargs="?",
        metavar="BESIDE",
        help="a second record: the first is then of the prefill engine and this of the decode "
        "engine, and what only both show is judged",
    )
    parser.add_argument(
        "--all", action="store_true", help="also show what does not concern the finding"
    )
    parser.add_argument(
        "--html",
        type=options.new_file,
        metavar="FILE",
        help="write the block ledger of a trace as a page for a browser to a new file",
    )
    options.add_vllm(parser)
    options.add_fail_on(parser)


def run(args: argparse.Namespace) -> int:
    """Print the file. The exit code is 0 where nothing is judged; two records have a verdict."""
    if args.trace.is_dir():
        return _campaign(args)
    trace = read_either(args.trace)
    if args.html is not None and (args.beside is not None or not isinstance(trace, Trace)):
        raise UsageError(
            "A record or a plan has no states of its engine, and no page for a browser. Use "
            "kvproof report without --html, or --html with a trace."
        )
    if args.beside is not None:
        return two_records.run(args)
    if isinstance(trace, Record):
        return _record(args, trace)
    if isinstance(trace, PlanRun):
        return _plan(args, trace)
    if trace.finding is not None and trace.finding.invariant != CONFORMANCE:
        check_named(trace.finding.invariant)
    known = recognised(trace)
    files = []
    if args.html is not None:
        html = page(of_trace(trace, args.trace, known))
        said = f"\nThe page is in {shown(args.html)}."
        files.append(File(lambda: write_new(args.html, html), lambda _: said))
    return finish(
        args,
        0,
        lambda: {"trace": records(trace)},
        lambda: show(
            sys.stdout,
            trace,
            Extra(
                args.trace,
                whole=args.all,
                known=known,
            ),
        ),
        files,
    )


def _campaign(args: argparse.Namespace) -> int:
    """Print a campaign."""
    if args.html is not None or args.beside is not None:
        raise UsageError(
            f"{shown(args.trace)} is read as a campaign, and that has no page for a browser and "
            "nothing beside it. Use kvproof report with this folder alone, or with a trace of it."
        )
    given = figures(CampaignFolder(args.trace).state())

    def text() -> None:
        for line in lines(given):
            say(line)

    return finish(args, 0, lambda: {"figures": given}, text)


def _plan(args: argparse.Namespace, planned: PlanRun) -> int:
    """Print a plan, after what it broke."""

    def text() -> None:
        if planned.finding is not None:
            print_lines(sys.stdout, finding_lines(planned.finding))
        for line in planned.lines:
            say(line)
        named = planned.connector
        trust = " --trust" * (named is not None and named.needs_trust)
        say(f"Replay it: kvproof replay {shell_word(args.trace)}{trust}")

    return finish(args, 0, lambda: {"trace": records(planned)}, text)


def _record(args: argparse.Namespace, record: Record) -> int:
    """Print a record."""
    shared = total(rows_of_record(record))
    return finish(
        args,
        0,
        lambda: {"trace": list(record_lines(record)), "shared": shared},
        lambda: in_terminal.show(sys.stdout, record, whole=args.all),
    )
