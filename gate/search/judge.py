"""Base and head, compared in processes of their own, and what was found written down."""

import argparse
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kvproof.gate.difference.compare import Candidate, of_one_shape
from kvproof.gate.difference.judged import Key
from kvproof.gate.difference.protocol import RecordRun, Seen
from kvproof.gate.difference.result import Result, severity
from kvproof.gate.difference.workload import Plays
from kvproof.gate.search.comparison import Comparison, Confirmed
from kvproof.gate.search.costs import Weighing
from kvproof.gate.search.needs import in_words
from kvproof.gate.search.outcome import GateOutcome, Written
from kvproof.gate.search.search import Search
from kvproof.gate.search.shorter import FURTHER_RUNS_MAX, RUNS_MAX, shorter
from kvproof.gate.search.side import Ended, started
from kvproof.gate.search.ticking import Ticking
from kvproof.gate.side.unmade import is_unmade
from kvproof.gate.source.changes import USED, ChangedFunction, Changes, unreached
from kvproof.gate.source.parts import ONLY_IN, of_device
from kvproof.live import reproducer
from kvproof.live.availability import require_torch
from kvproof.live.releases import NEEDED, Cache, Failed, cache_folder, needed_before
from kvproof.live.trees import Tree, environment
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.severity import Severity
from kvproof.model.traces.trace_reader import read
from kvproof.reports import live_line
from kvproof.reports.gate_output import Class

Environment = Mapping[str, str]

EMPTY_S = 20
"""The time of a search that shows no more than whether head dies, in seconds: what head changes has
nothing to do in any run."""

EMPTY_WORDS = ": no request of a run has anything in it"

NAMED_MAX = 3
"""The number of functions that a reason names."""

WRITTEN_MAX = 3
"""The number of introduced findings for which a trace and a reproducer are written, the most severe
first."""


def judged(
    args: argparse.Namespace, trees: tuple[Tree, Tree], changes: Changes, line: Ticking
) -> GateOutcome:
    """What head introduces, and the rest that is known. Packages that an older vLLM imports, and
    this environment does not have, are installed into the cache folder. Raises UsageError where no
    vLLM can be imported."""
    require_torch()
    beside: tuple[Path, ...] = ()
    with suppress(UsageError):  # there is no cache folder
        beside = needed_before(cache_folder(args.cache))

    def compared() -> GateOutcome:
        base, head = (environment(each, beside) for each in trees)
        return _compared(args, (base, head), changes, line)

    found = compared()
    if not beside and any(each.lacks in NEEDED for each in found.seen or ()):
        with suppress(Failed):
            beside = (Cache(cache_folder(args.cache)).needed(),)
            found = compared()
    return found


def not_reached(changes: Changes) -> GateOutcome:
    """What is known without a run where no code that kvproof drives names a changed function."""
    return GateOutcome(reason=not_driven(changes.accounting))


def _compared(
    args: argparse.Namespace,
    environments: tuple[Environment, Environment],
    changes: Changes,
    line: Ticking,
) -> GateOutcome:
    base, head = environments
    found = GateOutcome(reason="interrupted")
    with (
        interruption.stoppable(),  # an interruption is also raised where the processes are ended
        ExitStack() as at_the_end,  # its threads may wait for a process until that is ended
        started(base) as on_base,
        started(head) as on_head,
    ):
        comparison = Comparison(on_base, on_head, args.seed)
        at_the_end.callback(comparison.close)
        found = _Judge(args, comparison, changes, line).run()
    return found  # noqa: RET504 (an interruption leaves the first one)


class _Judge:
    """One comparison from its beginning to its end."""

    def __init__(
        self,
        args: argparse.Namespace,
        comparison: Comparison,
        changes: Changes,
        line: Ticking,
    ) -> None:
        self.args = args
        self.not_written: list[str] = []
        self.reproduced = False
        self.comparison = comparison
        self.line = line
        self.begin = begin = line.begin
        self.changes = changes
        self.until = begin + FOUND * args.budget
        self.end = begin + args.budget
        self.started = begin
        self.searched_s = 0.0
        longest = begin + SEARCHED * args.budget
        self.weighing = Weighing(comparison)
        self.search = Search(
            comparison, changes, self.until, self._fails, line.show, longest, self.weighing
        )
        self.seen: tuple[Seen, Seen] | None = None
        self.announced: Key | None = None
        self.introduced: list[Confirmed] = []
        self.written: list[tuple[Confirmed, Written]] = []
        self.of_base: dict[tuple[Class, Key], Confirmed] = {}
        comparison.notify = self._announce_first
        comparison.may_try = self._may_weigh

    def run(self) -> GateOutcome:
        """Search, shrink and write. An interruption keeps what was found."""
        cannot = ""
        with interruption.stoppable() as stopped, self._noted():
            cannot = self._searched()
            if not (cannot or self._fails()):
                self._weigh()
        self.introduced = sorted(self.comparison.introduced, key=lambda one: severity(one.found))
        with interruption.stoppable() as stopped_later, self._noted():
            self._write_introduced()
            if not cannot:
                self._take_runs_of_base()
        if stopped or stopped_later:
            cannot = "interrupted"
        return GateOutcome(
            [*self.written, *((one, Written()) for one in self.introduced)],
            [(kind, one) for (kind, _), one in self.of_base.items()],
            self.seen,
            self.comparison,
            self._not_run(),
            cannot or self._unjudged(),
            costs=self.weighing.told,
        )

    def _weigh(self) -> None:
        """Confirm what head does more often than base, and what costs more. Raises Ended."""
        self.line.show("comparing what costs more ...")
        if self.weighing.rest(self._may_weigh, self._may_weigh_choices):
            unconfirmed = self.weighing.unconfirmed
            self.not_written += (f"not confirmed: {each}" for each in unconfirmed)
        else:
            self.not_written.append("what costs more: no time is left")

    def _write_introduced(self) -> None:
        """Shrink and write the gravest of what is introduced. What breaks with one of them too is
        told there. Raises Ended, and KeyboardInterrupt."""
        while self.introduced and len(self.written) < WRITTEN_MAX:
            interruption.check()
            self._announce(self.introduced[0])
            runs = FURTHER_RUNS_MAX if self.written else RUNS_MAX
            one = shorter(self.comparison, self.introduced[0], self.end, runs)
            self.introduced[0] = one
            interruption.check()
            self.written.append(self._written(one))
            reported = {one.found.key} | one.also
            rest = self.introduced[1:]
            self.introduced = [e for e in rest if not of_one_shape(e.found.key, reported)]

    def _take_runs_of_base(self) -> None:
        """Find out what became on head of what base breaks. Raises Ended."""
        self.line.show("taking the runs of base on head ...")
        for kind, one in self.comparison.of_base():
            self.of_base.setdefault((kind, one.found.key), one)
            if time.monotonic() > self.end:
                self.not_written.append("the other findings of base on head: no time is left")
                break

    def _searched(self) -> str:
        """Search. Returns why head cannot be judged, or an empty text."""
        try:
            self.line.show("importing both vLLMs ...")
            self.seen = self.comparison.look(self.changes.places, beside=self.search.prepare)
            self.started = time.monotonic()
            on_base, on_head = self.seen
            for name, seen in (("head", on_head), ("base", on_base)):  # head is what can be mended
                if seen.failure:
                    return f"{name} cannot be driven: {seen.failure}"
            self.search.connectors = on_head.connectors
            if all(ONLY_IN.get(each.part) == "" for each in self.changes.accounting):
                self.search.until = min(self.search.until, self.started + EMPTY_S)
                self.search.longest = min(self.search.longest, self.started + EMPTY_S)
            return self._driven()
        except Ended as error:
            return f"a process that drives vLLM has ended ({error})"

    def _driven(self) -> str:
        """Search with both sides running. Returns as `_searched`. Raises Ended."""
        reaches = self.search.reaches()
        if reaches:
            self.search.run()
        self.searched_s = time.monotonic() - self.started
        if reaches:
            return ""
        if self.search.cut_short:
            driven = self.comparison.looked_at + len(self.comparison.names)
            if not driven:
                return too_short(self.args.budget, self.started - self.begin)
            left = len(self.search.traces) + self.search.scouts.left - self.comparison.looked_at
            left_s = self.searched_s * max(left, 1) / driven
            return self._no_time("kvproof has looked for all that may reach it", left_s)
        return not_driven(self.changes.accounting) + self._drifted()

    def _no_time(self, what: str, left_s: float) -> str:
        """That the time for the search ended before something, and a budget that is likely to be
        enough."""
        took_s = self.started - self.begin + self.searched_s
        budget = max(enough(took_s, left_s), self.args.budget + 10)
        return (
            f"the time for the search ended, {SEARCHED:.0%} of {self.args.budget:.0f} s, before "
            f"{what}; use --budget {budget:.0f} or more"
        )

    def _may_weigh_choices(self) -> bool:
        """Whether there is time for a choice of head: half of it is for the quantities."""
        half = (FOUND + WEIGHED) / 2
        return bool(time.monotonic() < self.begin + half * self.args.budget)

    def _may_weigh(self) -> bool:
        return bool(time.monotonic() < self.begin + WEIGHED * self.args.budget)

    def _fails(self) -> bool:
        grave: Severity = self.args.fail_on
        return any(severity(one.found) <= grave for one in self.comparison.introduced)

    def _written(self, one: Confirmed) -> tuple[Confirmed, Written]:
        """Write the trace of a finding, from head, and a reproducer."""
        if not one.alone:
            why = "it shows only after earlier runs of its process, and no trace has these"
            self.not_written.append(f"the trace of {one.found.key.words}: {why}")
            return one, Written()
        folder, stem = Path(self.args.traces), one.found.signature.check
        recorded = self.comparison.head.record(RecordRun(one.found, str(folder), stem))
        if recorded.error:
            self.not_written.append(f"the trace of {one.found.key.words}: {recorded.error}")
        if not recorded.path:
            return one, Written()
        path = Path(recorded.path)
        if one.found.plan is not None:
            return one, Written(path, recorded.events)
        self.line.show(f"writing a reproducer of {stem} ...")
        return one, Written(path, recorded.events, self._reproducer(path))

    def _reproducer(self, path: Path) -> Path | None:
        """A pytest file beside the trace of the gravest finding, or of the next of which there can
        be one: its author waits for the answer. None where none fails on head and passes on
        base."""
        if time.monotonic() > self.end:
            self.not_written.append(f"a reproducer of {shown(path)}: the budget is used up")
            return None
        if self.reproduced:
            self.not_written.append(
                f"a reproducer of {shown(path)}: there is one of another finding"
            )
            return None
        made = reproducer.write(read(path), self.comparison, path.parent, path.stem)
        if isinstance(made, str):
            self.not_written.append(f"a reproducer of {shown(path)}: {made}")
            return None
        self.reproduced = True
        return made

    def _not_run(self) -> list[str]:
        """What was not judged, one line each."""
        both, needs = self.comparison, self.comparison.needs
        undecided = [one for one, _ in both.undecided.values()]
        told = {one.found.need for one in both.introduced}
        by_chance = [each for each in needs.not_more if each not in told]
        seen: dict[str, Sequence[Candidate | Confirmed]] = {
            "seen once on head and not again": both.not_again,
            "seen on head, and base could not be asked": both.unconfirmed,
            "seen on head alone, and not tried in enough runs": undecided,
        }
        needed = {
            "seen on head and not again": needs.not_again,
            "seen more often on head, and not weighed": needs.unweighed,
            "seen more often on head, by chance perhaps": by_chance,
        }
        unwatched = (
            f"what runs reach of {file} is not known on {side}"
            for side, look in zip(("base", "head"), self.seen or (), strict=False)
            for file in look.unwatched
        )
        return [
            *self.search.not_run,
            *both.one_sided,
            *both.undriven,
            *(f"{what}: {_with_place(one)}" for what, those in seen.items() for one in those),
            *both.too_few,
            *dict.fromkeys(
                f"{what}: {in_words(each)}" for what, those in needed.items() for each in those
            ),
            *unwatched,
            *self.not_written,
        ]

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Where a process ends while findings are written, what is missing is noted."""
        try:
            yield
        except Ended as error:
            self.not_written.append(f"the rest: a process that drives vLLM has ended ({error})")

    def _unjudged(self) -> str:
        """Why a search that ended says nothing; empty if it says something."""
        results = self.comparison.on_head
        if not results:
            return too_short(self.args.budget, self.started - self.begin)
        if all(result.reason for result in results.values()):
            return f"no workload can be driven on head: {next(iter(results.values())).reason}"
        both = (*self.comparison.on_base.values(), *results.values())
        if all(each.reason or is_unmade(each) for each in both):
            return f"no engine can be made on base and on head: {_why(both)}"
        ours = [each for each in self.changes.accounting if not each.declares]
        left = unreached(ours, self._reached_in)
        if len(left) == len(ours) or any(each.part != USED for each in left):
            return self._left(left or list(self.changes.accounting)) + self._drifted()
        if missing := self.search.missing:
            what = f"{' and '.join(missing)} were driven, which a judgement needs"
            return self._no_time(what, self.search.left_s)
        if lost := self.comparison.only_on_base:
            number = f"{len(lost)} workload{'s' * (len(lost) > 1)}"
            return f"{number} can be driven on base and not on head: {lost[0]}"
        if self.comparison.unconfirmed:
            return "base could not be asked about what breaks on head"
        few = self.comparison.too_few
        if grave := [words for words, each in few.items() if each <= self.args.fail_on]:
            return grave[0]
        if any(not each.is_choice for each in self.comparison.needs.unweighed):
            return "what head does more often than base without a reason was not weighed in time"
        return self._never_ran()

    def _never_ran(self) -> str:
        """Which part of the change no run has executed, and which outcome of a changed condition
        none has seen; empty where all was. What runs on a device alone is not waited for."""
        so_far = self.comparison.reached_by()
        left = {each.key: each.not_run(so_far) for each in self.changes.judged}
        named = [f"{key} ({', '.join(what)})" for key, what in left.items() if what]
        if not named:
            return ""
        more = f" and {len(named) - NAMED_MAX} more functions" * (len(named) > NAMED_MAX)
        return f"no run executes all that head changes: {'; '.join(named[:NAMED_MAX])}{more}"

    def _left(self, functions: Sequence[ChangedFunction]) -> str:
        """Why nothing can be concluded about these functions. Some are called, and no run executes
        the change in them."""
        names = [each for each in functions if each.key in self._reached_in(each)]
        rest = [each for each in functions if each not in names]
        why = [not_driven(rest)] if rest else []
        if names:
            called = ", ".join(each.key for each in names)
            why.append(f"runs call {called} and execute no changed statement")
        return "; ".join(why)

    def _reached_in(self, function: ChangedFunction) -> Collection[str]:
        """What those runs reached in which such a function has something to do."""
        subject = ONLY_IN.get(function.part)
        return () if subject == "" else self.comparison.reached_by(subject or "")

    def _drifted(self) -> str:
        """Which connector the kit cannot drive on a side, and why not."""
        both = self.comparison
        for side, results in (("base", both.on_base), ("head", both.on_head)):
            for name, each in both.workloads.items():
                if isinstance(each, Plays) and (why := results[name].reason):
                    first, *_ = why.splitlines()
                    return f"; {each.connector} cannot be driven on {side}: {first}"
        return ""

    def _announce_first(self, one: Confirmed) -> None:
        """Show the first finding at once: others may be graver, and its run is not shrunk yet."""
        if self.announced is None:
            self.announced = one.found.key
            self._say_introduced(one)

    def _announce(self, one: Confirmed) -> None:
        """Show a finding before its run is shrunk, which takes a while."""
        if one.found.key != self.announced:
            self._say_introduced(one)
        self.line.say(live_line.SHORTER)
        self.line.show(f"shrinking a run of {one.found.signature.check} ...")

    def _say_introduced(self, one: Confirmed) -> None:
        found, steps = one.found, f"{one.found.length} steps"
        self.line.say(f"Introduced: {found.signature.check}: {found.finding.sentence} ({steps})")


def not_driven(functions: Sequence[ChangedFunction]) -> str:
    """Why a change is not judged of which no run reaches these functions."""
    parts = Counter(each.part for each in functions if each.part != USED)
    named = (parts or Counter({USED: len(functions)})).items()
    listed = (
        f"{part} ({number} function{'s' * (number > 1)}{EMPTY_WORDS * (ONLY_IN.get(part) == '')})"
        for part, number in named
    )
    files = sorted({each.key.partition(":")[0] for each in functions})
    device = ", ".join(file for file in files if of_device(file))
    why = f"; what is in {device} runs with a model on its device alone" if device else ""
    return f"head changes accounting that no run of kvproof drives yet: {', '.join(listed)}{why}"


def _with_place(one: Candidate | Confirmed) -> str:
    """A break of head, and where it was seen."""
    return f"{one.found.key.words} in {one.workload}"


def _why(results: Sequence[Result]) -> str:
    """Why the first of these workloads whose engine cannot be made has none."""
    first = next(each for each in results if is_unmade(each))
    return first.breaks[0].finding.sentence


SEARCHED = 0.9
"""The share of the budget after which no workload begins."""

FOUND = 0.75
"""The same where something was found, which must still be shrunk and written, or where something
has to be seen more often in fresh runs."""

WEIGHED = 0.95
"""The share of the budget after which no fresh runs begin."""


def too_short(budget: float, start_s: float) -> str:
    """What to say where a start of so many seconds has left no time."""
    return (
        f"a budget of {budget:.0f} s is used up before anything is driven: to start both vLLMs "
        f"takes about {start_s:.0f} s here; use --budget {enough(start_s, start_s)} or more"
    )


def enough(started_s: float, left_s: float) -> int:
    """A budget, in seconds, in which what is left of a search is driven too, that would take so
    long."""
    return math.ceil((started_s + left_s) / SEARCHED / 10) * 10
