"""`kvproof gate`: the check for a pull request: explore, prove, and sample real vLLM.

If vLLM cannot be run, its part is UNKNOWN and the exit code is 3, unless --without-live is
given.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.answer import followed, known, trace_file, traced
from kvproof.cli.explore import exhausted
from kvproof.cli.finish import File, finish, fixed
from kvproof.cli.graver import tolerated_lines, with_graver
from kvproof.cli.machines import Maker, borrow, maker
from kvproof.cli.prove import proved
from kvproof.cli.sample import sampled
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.severity import Severity
from kvproof.reports import junit
from kvproof.reports.output.many import Gate
from kvproof.reports.output.proof import ProvedPart
from kvproof.reports.output.search import Explored, SampledLive
from kvproof.reports.output.verdict import verdict_output
from kvproof.reports.screen import Line, say
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer.explorer import Limits
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

PROOF_TIMEOUT_S = 10.0
IN = 13
"""The column in which the text about a part begins."""

NOT_RUN = "not run: interrupted before"


KINDS: dict[str, type[Explored | ProvedPart | SampledLive]] = {
    "explore": Explored,
    "prove": ProvedPart,
    "sample live": SampledLive,
}
"""The output of each part."""

INDENT = " " * 13
"""In front of what is printed below the line of a part."""


class Part(NamedTuple):
    """One search, its machine and its outcome."""

    name: str
    maker: Maker
    outcome: Outcome


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_scope(parser)
    options.add_sampling(parser)
    options.add_fail_on(parser)
    options.add_states_max(parser)
    options.add_traces(parser)
    options.add_vllm(parser)
    parser.add_argument(
        "--junit", type=options.new_file, metavar="FILE", help="write JUnit XML to a new file"
    )
    parser.add_argument("--without-live", action="store_true", help="do not run real vLLM")


def run(args: argparse.Namespace) -> int:
    """Run the parts, and print one line for each. The exit code is that of the worst part with at
    least the severity of --fail-on."""
    setup = options.setup(args)
    borrow(args.vllm, args.cache, live=not args.without_live)
    parts = _parts(setup, args)
    traces = {part.name: file for part in parts if (file := _trace_file(setup, part, args))}
    files = list(traces.values())
    if args.junit is not None:
        cases = [junit.Case(part.name, part.outcome, args.fail_on) for part in parts]
        files.append(
            fixed(args.junit, lambda: junit.write(args.junit, "kvproof gate", cases), whole=False)
        )
    verdict = _worst([part.outcome for part in parts])
    code = _exit_code([part.outcome.exit_code(args.fail_on) for part in parts])

    def output(end: int) -> Gate:
        return Gate(
            exit_code=end,
            verdict=verdict.value,
            seed=args.seed,
            seconds=round(sum(part.outcome.seconds for part in parts), 3),
            parts=tuple(_output(setup, part, traces.get(part.name), args) for part in parts),
        )

    def text() -> None:
        for part in parts:
            for line in _lines(part, args.fail_on):
                say(line.text, line.hang)
        if args.without_live:
            say("sample live  not run (--without-live)")
        held = f"all hold on cluster {setup.cluster.name}"
        say(f"gate: {verdict.value if verdict.exit_code else held}")
        if verdict.exit_code and not code:
            say(f"No violation is as severe as {args.fail_on.words}, so the exit code is 0.")

    return finish(args, code, output, text, files)


def _trace_file(setup: options.Setup, part: Part, args: argparse.Namespace) -> File | None:
    """The file of a part's trace, if it has one."""
    trace = traced(setup, part.maker, part.outcome, args.seed)
    if trace is None:
        return None
    return trace_file(trace, args.traces, lambda path: f"{part.name:12} trace {shown(path)}")


def _output(
    setup: options.Setup, part: Part, trace: File | None, args: argparse.Namespace
) -> Explored | ProvedPart | SampledLive:
    return verdict_output(
        KINDS[part.name],
        part.outcome,
        cluster=setup.cluster,
        faults=setup.fault_names,
        machine=part.maker.name,
        seed=args.seed,
        trace=trace.path if trace else None,
        fail_on=args.fail_on,
    )


def _parts(setup: options.Setup, args: argparse.Namespace) -> list[Part]:
    """All parts, one after the other. After an interruption the remaining parts are not run."""
    model = maker("model", setup.rules)
    searches: dict[str, Callable[[], tuple[Maker, Outcome]]] = {
        "explore": lambda: (model, _explored(setup, args)),
        "prove": lambda: (model, proved(None, PROOF_TIMEOUT_S, setup.rules)[0]),
    }
    if not args.without_live:
        searches["sample live"] = lambda: _live(setup, args)
    parts: list[Part] = []
    for name, search in searches.items():
        reason = NOT_RUN if interruption.requested() else INTERRUPTED
        made, outcome = model, Outcome(Verdict.UNKNOWN, reason=reason)
        with interruption.stoppable():
            interruption.check()
            made, outcome = search()
        parts.append(Part(name, made, followed(setup, made, outcome)))
    return parts


def _live(setup: options.Setup, args: argparse.Namespace) -> tuple[Maker, Outcome]:
    try:
        live = maker("live", setup.rules)
    except UsageError as error:
        reason = f"not run: {error}"
        return maker("model", setup.rules), Outcome(Verdict.UNKNOWN, reason=reason)
    found = sampled(setup, live, args)
    checks = CHECKS.values()
    found = with_graver(found, setup, args.fail_on, lambda s: sampled(s, live, args), checks)
    return live, live.timed(found)


def _explored(setup: options.Setup, args: argparse.Namespace) -> Outcome:
    limits = Limits(args.states_max)
    found = exhausted(setup, limits)[0]
    return with_graver(
        found,
        setup,
        args.fail_on,
        lambda graver: exhausted(graver, limits)[0],
        [*INVARIANTS.values(), *conformance_checks(setup.rules)],
    )


def _worst(outcomes: list[Outcome]) -> Verdict:
    """The verdict of the gate: VIOLATED before UNKNOWN, then the weakest positive verdict."""
    order = (
        Verdict.VIOLATED,
        Verdict.UNKNOWN,
        Verdict.SAMPLED,
        Verdict.EXHAUSTED,
        Verdict.PROVED,
    )
    return min((outcome.verdict for outcome in outcomes), key=order.index)


def _exit_code(codes: list[int]) -> int:
    """The exit code of the gate: that of a violation before that of an unknown part."""
    violated = Verdict.VIOLATED.exit_code
    return violated if violated in codes else max(codes)


def _lines(part: Part, fail_on: Severity) -> Iterator[Line]:
    outcome, margin = part.outcome, " " * IN
    text = f"{part.name:12} {outcome.verdict.value:10} ({outcome.seconds:.1f} s)"
    if outcome.finding is not None:
        grave = f" ({outcome.severity.words})" if outcome.severity else ""
        text += f" {outcome.finding.invariant}{grave}: {outcome.finding.sentence}"
    if outcome.leads_to is not None:
        yield Line(text, hang=IN)
        text = margin + outcome.leads_to.sentence
    yield Line(f"{text} {outcome.reason}" if outcome.reason else text, hang=IN)
    for line in (*tolerated_lines(outcome, fail_on), *known(outcome)):
        yield Line(margin + line, hang=IN)
