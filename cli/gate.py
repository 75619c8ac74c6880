"""`kvproof gate`: the check of a pull request: what does head break that base does not?

Base and head are two vLLMs. Each is imported by a process of its own, and both are driven with the
same workloads at the same time. A finding is reported as introduced only if head shows it again in
a fresh process, and base does not. What base breaks too never fails a pull request.

Beside its answer it writes SARIF and Markdown, each into a new file, and in GitHub Actions
annotations on the changed lines and the summary of the step. The file of the summary exists there
already and belongs to the step: the result is appended to it, without an option. Annotations go to
standard error, which the runner reads too, so that standard output stays one object with `--json`.
Neither is a result that was asked for, so a summary that cannot be written changes no exit code.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvproof.cli import parser as options
from kvproof.cli.finish import File, finish
from kvproof.gate.formats import github, markdown, sarif, terminal
from kvproof.gate.search import judge
from kvproof.gate.search.outcome import GateOutcome, output
from kvproof.gate.search.ticking import Ticking
from kvproof.gate.source.changes import Changes, changed
from kvproof.gate.source.parts import STARTED
from kvproof.live.trees import Tree, commit, fingerprint, named
from kvproof.live.trees.commits import require_clone
from kvproof.model import interruption
from kvproof.model.counted import counted
from kvproof.model.errors import UsageError
from kvproof.model.files.writing import append, write_new
from kvproof.model.severity import Severity
from kvproof.reports.gate_output import Gate
from kvproof.reports.screen import say

FAIL_ON = Severity.WRONG_REPORT
"""A pull request fails where it introduces a finding of this severity or a higher one."""

BUDGET_S = 300


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof gate` to its parser."""
    options.add_vllm(parser)
    parser.add_argument(
        "--repo", type=Path, metavar="PATH", help="take base and head from this git clone of vLLM"
    )
    parser.add_argument(
        "--base",
        metavar="REF|PATH|X.Y.Z",
        help="what head is compared with: a commit of --repo, or a vLLM as for --vllm (default: "
        "the installed vLLM)",
    )
    parser.add_argument(
        "--head", metavar="REF", help="the commit of --repo under review (default: HEAD)"
    )
    parser.add_argument(
        "--budget",
        type=options.at_least_one,
        default=BUDGET_S,
        metavar="SECONDS",
        help=f"wall time of the search, in seconds (default: {BUDGET_S})",
    )
    options.add_fail_on(parser, FAIL_ON, costs=True)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 3 where no run shows an effect of head"
    )
    options.add_traces(parser)
    add_files(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, and print what head introduces."""
    begin = time.monotonic()
    require_apart(args)
    args.fail_on_costs = args.fail_on == options.COSTS
    if args.fail_on_costs:
        args.fail_on = max(Severity)
    with Ticking(args.budget, begin) as line:
        line.show("reading base and head ...")
        base, head = chosen(args)
        changes, found = _compared(args, (base, head), line)
    result = output(args, (base, head), changes, found, time.monotonic() - begin)

    return finish(
        args,
        result.exit_code,
        lambda: result,
        lambda: terminal.show(result),
        files(args, result),
    )


def _compared(
    args: argparse.Namespace, both: tuple[Tree, Tree], line: Ticking
) -> tuple[Changes, GateOutcome]:
    """Say what head changes, and what it introduces."""
    base, head = both
    changes, found = Changes((), ()), GateOutcome(reason="interrupted")
    with interruption.stoppable():
        if fingerprint(base) == fingerprint(head):
            found = GateOutcome(
                unchanged=True, reason=f"{head.name} has the same files as {base.name}"
            )
        else:
            changes = changed(base.package, head.package)
            if not changes.accounting:
                others = counted(len(changes.others), "other function")
                what = f"it changes {others}" if changes.others else "only other text differs"
                found = GateOutcome(
                    unchanged=True, reason=f"head changes no function of it; {what}"
                )
            elif not any(each.called or each.part in STARTED for each in changes.accounting):
                found = judge.not_reached(changes)
            else:
                found = judge.judged(args, (base, head), changes, line)
    return changes, found


def chosen(args: argparse.Namespace) -> tuple[Tree, Tree]:
    """Base and head. Raises UsageError."""
    if args.repo is not None:
        if args.vllm is not None:
            raise UsageError("--repo and --vllm both say which vLLM is head. Use one of them.")
        require_clone(args.repo)
        if args.base is None:
            raise UsageError("--repo needs a commit to compare with. Use --base with a commit.")
        head = commit(args.repo, args.head or "HEAD", args.cache)
        return commit(args.repo, args.base, args.cache), head
    if args.head is not None:
        raise UsageError("--head names a commit, and there is no --repo. Use --vllm for a folder.")
    head = named(args.vllm, args.cache)
    base = named(args.base, args.cache)
    if args.base is None and base.package == head.package:
        raise UsageError(
            "There is no vLLM to compare with: head is the installed one. Use --repo with a clone "
            "of vLLM, or --base with another vLLM."
        )
    return base, head


FORMATS = {
    "sarif": (sarif.document, "SARIF 2.1.0, for code scanning,"),
    "summary": (markdown.document, "Markdown, as for the annotation of a CI system,"),
}
"""For each option its format, and the name of it."""


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options for files to the parser of `kvproof gate`."""
    for name, (_, what) in FORMATS.items():
        parser.add_argument(
            f"--{name}",
            type=options.new_file,
            metavar="FILE",
            help=f"write the result as {what} to a new file",
        )
    parser.add_argument(
        "--annotations",
        choices=("auto", "github", "none"),
        default="auto",
        help="annotate the changed lines on GitHub, and write the summary of the step (default: "
        "auto, which does so where GITHUB_ACTIONS is true)",
    )


def require_apart(args: argparse.Namespace) -> None:
    """Refuse one path for two files before the work is done. Raises UsageError."""
    paths = [path.resolve() for name in FORMATS if (path := getattr(args, name))]
    if len({*paths}) < len(paths):
        raise UsageError("Two of the files of the gate have one path. Use a path for each.")


def files(args: argparse.Namespace, gate: Gate) -> list[File]:
    """Return the files that were asked for, and what GitHub Actions takes where it runs the
    command."""
    asked = [(getattr(args, name), document) for name, (document, _) in FORMATS.items()]
    found = [File(partial(_written, path, document, gate)) for path, document in asked if path]
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if args.annotations == "github" or (args.annotations == "auto" and on_github):
        found.append(File(lambda: _annotated(gate)))
    return found


def _written(path: Path, document: Callable[[Gate], str], gate: Gate) -> Path:
    return write_new(path, document(gate))


def _annotated(gate: Gate) -> Path:
    """Print the annotations, and append to the summary of the step. Return the path of the
    summary."""
    for command in github.commands(gate):
        say(command, hang=0, file=sys.stderr)
    path = Path(os.environ.get("GITHUB_STEP_SUMMARY") or os.devnull)
    try:
        append(path, markdown.document(gate))
    except UsageError as error:
        say(str(error), file=sys.stderr)
    return path
