"""Base and head, driven with the same workloads at the same time, and what only one of them breaks.

Before a difference is reported, it is confirmed: both sides take the same stimuli again, in fresh
processes, and then many runs like this one (`trial`). Where base breaks the same check in about as
many, the defect is not new, and where head breaks it in few, nobody knows. A run in which base ends
before the place of the break says nothing of base: then the other runs decide, or nobody knows. One
in which head loses performance and base breaks something graver is explained: a hit that is lost
where base served wrong tokens is no reason against a pull request (`Pair.new_on_head`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from kvproof.gate.difference.compare import (
    Candidate,
    Results,
    alike,
    dies_alike,
    of_each,
    of_one_shape,
    only_on,
    parting,
    same,
    the_same,
)
from kvproof.gate.difference.judged import Break, Key
from kvproof.gate.difference.protocol import Accepts, Seen
from kvproof.gate.difference.record import Pair
from kvproof.gate.difference.result import Result, pairs, severity
from kvproof.gate.difference.workload import (
    Engines,
    Episodes,
    Fixed,
    Follow,
    Play,
    Plays,
    Workload,
    follow,
)
from kvproof.gate.search import pairing
from kvproof.gate.search.fresh import LIKELY, Runs
from kvproof.gate.search.needs import Needs
from kvproof.gate.search.pairing import together
from kvproof.gate.search.side import Side
from kvproof.gate.search.trial import TRIES_IN_ALL, Trial, tried
from kvproof.gate.side import around_scheduler
from kvproof.gate.side.drawn_plans import accepted_by_both, one_sided, past_deaths, with_plans
from kvproof.gate.source.changes import ChangedFunction
from kvproof.gate.source.statements import Places
from kvproof.live.reproducer.choosing import Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.model import interruption
from kvproof.model.config.features.registry import used_by
from kvproof.model.severity import Severity
from kvproof.reports.gate_output import Class

A = TypeVar("A")
B = TypeVar("B")

TRIES = 3
"""The number of workloads with the same features in which one key is confirmed before it is left
alone there."""

TRIALS = 2
"""The number of trials of one key that say too little."""

PAST_DEATHS = 3
"""How many times a plan that ends both engines is driven without what ended them."""


def features_of(found: Break) -> frozenset[str]:
    """The features of the cluster in which a break was seen."""
    return frozenset(used_by(found.cluster))


class Confirmed(NamedTuple):
    """A break that was seen again on one side and not on the other. `reached` has the functions of
    head that its run called, and `also` what else this side alone breaks in the run. `parting` says
    where head leaves a run of base, if it does. It is not seen `alone` where it needs what earlier
    runs of its process left."""

    workload: str
    found: Break
    reached: frozenset[str]
    also: frozenset[Key] = frozenset()
    parting: str = ""
    alone: bool = True


def as_run(name: str, found: Break) -> Fixed:
    """The run of a break as a workload."""
    return found.run(f"{name}, again")


class Comparison:
    """Both sides with their results so far. `names` are the workloads that were driven, in order;
    `looked_at` is the number of those that were only watched before, without a check. `notify` is
    called with what is confirmed, at once."""

    def __init__(self, base: Side, head: Side, seed: int) -> None:
        self.base, self.head, self.seed = base, head, seed
        self.on_base, self.on_head = Results(), Results()
        self.names: list[str] = []
        self.workloads: dict[str, Workload] = {}
        self.introduced: list[Confirmed] = []
        self.not_again: list[Candidate] = []
        self.unconfirmed: list[Candidate] = []
        self.on_both: set[Key] = set()
        self.undecided: dict[Key, tuple[Confirmed, Trial]] = {}
        self.too_few: dict[str, Severity] = {}
        self.may_try: Callable[[], bool] = lambda: True
        self.looked_at = 0
        self.notify: Callable[[Confirmed], None] = lambda _: None
        self.costs: list[Confirmed] = []
        self.counted = Runs()
        self.needs = Needs(self)
        self._as_drawn: dict[str, Workload] = {}
        self._fresh: dict[bytes, tuple[Result, Result]] = {}
        self._accepts: dict[str, tuple[Accepts, Accepts]] = {}
        self._tries: Counter[tuple[Key, frozenset[str]]] = Counter()
        self._pool = ThreadPoolExecutor(2)

    def at_once(self, on_base: Callable[[Side], A], on_head: Callable[[Side], B]) -> tuple[A, B]:
        """What two functions return that run at the same time, one with each side. Raises Ended."""
        interruption.check()  # the threads may still wait for what was asked before
        first, second = self._pool.submit(on_base, self.base), self._pool.submit(on_head, self.head)
        return first.result(), second.result()

    def results(self, runs: Sequence[Workload], **how: Any) -> list[tuple[Result, Result]]:
        """The results of base and of head for each of these runs, driven as `Side.drive` says.
        Raises Ended."""
        base, head = self.at_once(
            lambda side: side.drive(runs, **how), lambda side: side.drive(runs, **how)
        )
        return list(zip(base, head, strict=True))

    def glance(self, workloads: Sequence[Workload]) -> list[tuple[Result, Result]]:
        """What these workloads reach on both sides, without any check. Raises Ended."""
        self.looked_at += len(workloads)
        return self.results(workloads, reach=True, judge=False)

    def look(
        self, places: tuple[Places, Places], *, beside: Callable[[], None]
    ) -> tuple[Seen, Seen]:
        """What both sides can drive. They import their vLLMs now; `beside` is called meanwhile.
        `places` are those of base and head that `reach` is about. Raises Ended."""
        both = zip((self.base, self.head), places, strict=True)
        seen = [self._pool.submit(side.look, of_side) for side, of_side in both]
        beside()
        return seen[0].result(), seen[1].result()

    def drive(self, workloads: Sequence[Workload], again: int = PAST_DEATHS) -> list[str]:
        """Drive these workloads on both sides, and record what they reach. Plans that end both
        engines are driven `again`, so many times, without what ended them. Returns the names of all
        that was driven. Raises Ended."""
        base, head = self._both(workloads)
        further: list[Workload] = []
        self.on_base.add(base)
        self.on_head.add(head)
        self.names += [workload.name for workload in workloads]
        self.workloads.update({workload.name: workload for workload in workloads})
        for workload, of_base, of_head in zip(workloads, base, head, strict=True):
            taken = pairs(of_base, of_head)
            self.needs.add(workload.name, taken)
            self.counted.add(taken)
            drawn = self._as_drawn[workload.name]
            if isinstance(drawn, Plays) and (past := past_deaths(drawn, taken)) is not None:
                further.append(past)
        names = [workload.name for workload in workloads]
        return names + (self.drive(further, again - 1) if further and again else [])

    def _both(self, workloads: Sequence[Workload]) -> tuple[list[Result], list[Result]]:
        """The results of both sides, which take the same runs. Raises Ended."""
        drawn = [self._drawn(each) for each in workloads]
        self._as_drawn.update({each.name: each for each in drawn})
        on_base, on_head = self.at_once(
            lambda base: pairing.own(0, base, self._asked(0, drawn)),
            lambda head: pairing.own(1, head, self._asked(1, drawn)),
        )
        again_on_base, again_on_head = self.at_once(
            lambda base: pairing.of_the_other(base, drawn, on_head),
            lambda head: pairing.of_the_other(head, drawn, on_base),
        )
        return (
            [self._not_there(0, e) or together(e, on_base, again_on_base) for e in drawn],
            [self._not_there(1, e) or together(e, again_on_head, on_head) for e in drawn],
        )

    def _asked(self, number: int, workloads: Sequence[Workload]) -> list[Workload]:
        """The workloads without plans for connectors that a side does not have."""
        return [each for each in workloads if self._not_there(number, each) is None]

    def _not_there(self, number: int, workload: Workload) -> Result | None:
        """The result of plans for a connector that a side does not have."""
        known = self._accepts.get(workload.connector) if isinstance(workload, Plays) else None
        if known is None or not known[number].reason:
            return None
        return Result(workload.name, reason=known[number].reason)

    def sides(self, workload: Workload) -> tuple[Result, Result]:
        """What base and head show of a workload that is none of the search. Several breaks may be
        tried in the same random runs. Raises Ended."""
        known = msgspec.json.encode(replace(workload, name=""))
        if known not in self._fresh:
            [base], [head] = self._both([workload])
            self._fresh[known] = base, head
        return self._fresh[known]

    def pairs(self, name: str) -> list[Pair]:
        """The runs of a workload of the search that both sides have a record of."""
        return pairs(self.on_base[name], self.on_head[name])

    def reached(self, name: str) -> frozenset[str]:
        """What a workload of the search reached, on either side: what head has no more is reached
        on base."""
        return frozenset((*self.on_base[name].reached, *self.on_head[name].reached))

    def reached_by(self, connector: str = "") -> set[str]:
        """What all workloads of the search reached, or the plans for one connector."""
        return {
            key
            for name, each in self.workloads.items()
            if not connector or (isinstance(each, Plays) and each.connector == connector)
            for key in self.reached(name)
        }

    @property
    def only_on_base(self) -> list[str]:
        """Why workloads, or the loops after their start-ups, that could be driven on base could not
        be driven on head."""
        both = [(self.on_base[name], self.on_head[name]) for name in self.names]
        return [
            head.reason or head.without_loops
            for base, head in both
            if not base.reason
            if head.reason or (head.without_loops and not base.without_loops)
        ]

    @property
    def undriven(self) -> list[str]:
        """The workloads that could not be driven, or without the loops after their start-ups,
        grouped by the reason, one line each, and the loops that were left out."""
        reasons: Counter[tuple[str, str]] = Counter()
        lines: list[str] = []
        for side, results in (("base", self.on_base), ("head", self.on_head)):
            for name in self.names:
                if why := results[name].reason or results[name].without_loops:
                    drawn = self._as_drawn[name]
                    plans = len(drawn.plans or ()) if isinstance(drawn, Plays) else 0
                    of = f" of {plans} plans" if plans else ""
                    reasons[of, f"on {side}: {why.splitlines()[0]}"] += 1
            if left := sum(results[name].unconnected for name in self.names):
                lines.append(f"the loops after {left} start-ups on {side}: NIXL refuses the layers")
        for (of, line), times in reasons.items():
            lines.append(f"{times} workload{'s' * (times > 1)}{of} {line}")
        return lines

    def all_pairs(self) -> Iterator[tuple[str, int, Pair]]:
        """All of these, each with the name of its workload and its number there."""
        for name in self.names:
            for number, pair in enumerate(self.pairs(name)):
                yield name, number, pair

    def observed(self, file: Path) -> tuple[Observed, Observed]:
        """What is seen on both after each statement of a generated file. Raises Ended."""
        return self.at_once(lambda base: base.observed(file), lambda head: head.observed(file))

    def tested(self, file: Path) -> tuple[RanFile, RanFile]:
        """The outcome of a generated file on both. Raises Ended."""
        return self.at_once(lambda base: base.tested(file), lambda head: head.tested(file))

    def _drawn(self, workload: Workload) -> Workload:
        """A workload with the same plans for both sides. Raises Ended."""
        if not isinstance(workload, Plays) or workload.plans is not None:
            return workload
        if workload.like is not None:
            return with_plans(workload, Accepts())
        name = workload.connector
        if name not in self._accepts:
            both = self.at_once(lambda base: base.accepts(name), lambda head: head.accepts(name))
            self._accepts[name] = both
        return with_plans(workload, accepted_by_both(*self._accepts[name]))

    @property
    def one_sided(self) -> list[str]:
        """What one side alone accepts of the connectors that were driven, a line each."""
        return [line for name, both in self._accepts.items() for line in one_sided(name, *both)]

    def executing(self, changed: Sequence[ChangedFunction]) -> list[int]:
        """How many random workloads that both sides were driven with execute the change of each of
        these functions: of clusters, where one of a cluster does, else of the kind of which most
        do."""
        found: list[Counter[type[Workload]]] = [Counter() for _ in changed]
        for name, each in self.workloads.items():
            if self.on_base[name].reason or self.on_head[name].reason:
                continue
            kind = Episodes if isinstance(each, Follow) else type(each)
            keys = self.reached(name)
            for function, kinds in zip(changed, found, strict=True):
                if function.ran(keys):
                    kinds[kind] += not isinstance(each, Follow)
        return [kinds.get(Episodes, max(kinds.values(), default=0)) for kinds in found]

    def confirm(self, names: Sequence[str]) -> None:
        """Confirm what only head breaks in these workloads. Raises Ended."""
        for candidate in only_on(self.on_head, self.on_base, names):
            if not self._settled(candidate.found):
                self._confirm(candidate)
        for name, found, head in self.needs.confirm():
            one = Confirmed(name, found, frozenset(head.reached))
            if not self._tell(one, as_run(name, found)):
                self.needs.leave(found.need)

    def _introduce(self, one: Confirmed) -> None:
        self.introduced.append(one)
        self.notify(one)

    def weigh_needs(
        self, go_on: Callable[[], bool], of_choices: Callable[[], bool] | None = None
    ) -> None:
        """Tell what head breaks, and base in no run, if the whole search says so; and what head
        needs, or breaks, more often than base: a choice is a cost, and so is a death that base dies
        too. `go_on` and `of_choices` are as for `Needs.weigh`. Raises Ended."""
        left, self.undecided = self.undecided, {}
        said = {key: trial.words for key, (_, trial) in left.items()}
        for one, trial in left.values():
            self._by_search(one, trial, trial.level)
        try:
            self.weigh(go_on, of_choices)
        finally:  # a process may have ended: what is not decided is no less so
            self._name_undecided(left, said)

    def weigh_undecided(self, level: float) -> None:
        """Tell what trials left undecided and the runs of the search so far say, by this level."""
        for key, (one, trial) in [*self.undecided.items()]:
            if self.counted.chance(trial.need) <= level:
                del self.undecided[key]
                self._by_search(one, trial, level)
                if not (key in self.on_both or self._is_introduced(key)):
                    self.undecided[key] = one, trial

    def _by_search(self, one: Confirmed, trial: Trial, level: float) -> None:
        """Tell a break that its trial left undecided, if that and all runs of the search say so."""
        key = one.found.key
        both = Trial(one.found, self.breaks_of_base)
        both.add_search(pair for _, _, pair in self.all_pairs())
        both.join(trial)
        both.on_base |= self._base_shows(one.found)
        both.beside |= any(the_same(key, each) for each in self.on_base.values())
        if both.on_base:
            self.on_both.add(key)
        elif both.is_told_at(level) and not self._is_introduced(key):
            self._introduce(one)

    def weigh(
        self,
        go_on: Callable[[], bool],
        of_choices: Callable[[], bool] | None = None,
        level: float = LIKELY,
    ) -> None:
        """Tell what head needs, or breaks, more often than base, as `Needs.weigh` says. Raises
        Ended."""
        for name, found, head in self.needs.weigh(go_on, of_choices, level):
            if self._is_introduced(found.key):
                continue
            one = Confirmed(name, found, frozenset(head.reached))
            if found.need.is_choice or self._is_death_of_base(found.key):
                self.costs.append(one)
            else:
                self._introduce(one)

    def _name_undecided(
        self, left: Mapping[Key, tuple[Confirmed, Trial]], said: Mapping[Key, str]
    ) -> None:
        """Name the breaks whose trials said too little, and the whole search no more."""
        for key, (one, trial) in left.items():
            if key in self.on_both or self._is_introduced(key):
                continue
            if (
                trial.beside or trial.explained
            ):  # this may be the same defect, which head was first to show like this
                self.needs.not_more.append(trial.need)
            else:
                self.too_few[said[key]] = severity(one.found)

    def _base_shows(self, found: Break) -> bool:
        """Whether base shows a break in some run of the search."""
        if found.need.excuses:
            return self.needs.base_does(found.need)
        return of_one_shape(found.key, self.on_base.keys_broken)

    def breaks_of_base(self, found: Break) -> list[Break]:
        """What base breaks in runs of the kind in which head shows a break: in the search and in
        trials."""
        fresh = (base for base, _ in self._fresh.values())
        broken = (each for result in (*self.on_base.values(), *fresh) for each in result.breaks)
        return [each for each in broken if each.kind_of_run == found.kind_of_run]

    def shown(self, run: Fixed) -> tuple[Result, Result]:
        """What base and head show of a run, with the breaks that have excuses. Raises Ended."""
        [both] = self.results([run], reach=True, excused=True)
        return both

    def run(self, name: str, number: int) -> Fixed | None:
        """One run of a workload, by itself; None where it is none of the runs that are kept."""
        workload = self._as_drawn[name]
        called = f"{name}, run {number + 1}"
        if isinstance(workload, Fixed):
            return replace(workload, name=called)
        if isinstance(workload, Engines):
            return around_scheduler.single(workload, number, called)
        if isinstance(workload, Plays):
            return Play(called, workload.connector, (workload.plans or ())[number])
        taken = (*self.on_base[name].taken, *self.on_head[name].taken)
        if number < len(taken):
            return follow(taken[number].cluster, called, taken[number].events)
        return None

    def _confirm(self, candidate: Candidate) -> None:
        """Confirm what head breaks: in its run alone or, where that needs what earlier ones left,
        in all runs of its workload once more. Base takes the same."""
        name, key = candidate.workload, candidate.found.key
        self._tries[key, features_of(candidate.found)] += 1
        kind: Workload = as_run(name, candidate.found)
        [(base, head)] = self.results([kind], reach=True)
        alone = same(key, head) is not None
        if not alone and not isinstance(self.workloads[name], Fixed):
            kind = self.workloads[name]
            [base], [head] = self._both([kind])
        again = same(key, head)
        if again is None:
            self.not_again.append(candidate)
        elif the_same(key, base) or dies_alike(key, base):
            self.on_both.add(key)
        elif base.reason:
            self.unconfirmed.append(candidate)
        else:
            one = Confirmed(name, again, frozenset(head.reached), alone=alone)
            of_base = {each.need for each in self.breaks_of_base(again)}
            explained = alone and any(
                pair.explains(again.need) or pair.follows(again.need, of_base)
                for pair in pairs(base, head)
            )
            self._tell(one, kind, size=0 if alone else len(head.records), explained=explained)

    def _tell(
        self, one: Confirmed, kind: Workload, *, size: int = 0, explained: bool = False
    ) -> bool:
        """Tell what head breaks and base does not, if a trial says so (`trial.tried`). The trial is
        brief after what is at least as grave. The break is `explained` by what base breaks in its
        run. Returns whether it is told. Raises Ended."""
        found = one.found
        brief = any(severity(each.found) <= severity(found) for each in self.introduced)
        _, earlier = self.undecided.get(found.key, (one, None))
        before = earlier.parts if earlier is not None else 0
        trial = tried(self, found, kind, size=size, brief=brief, before=before)
        trial.explained = explained
        if earlier is not None:
            trial.join(earlier)
            del self.undecided[found.key]
        if trial.is_told:
            self._introduce(one)
        elif trial.on_base:
            self.on_both.add(found.key)
        elif trial.reason:
            self.unconfirmed.append(Candidate(one.workload, found))
        else:
            self.undecided[found.key] = one, trial
        return trial.is_told

    def _settled(self, found: Break) -> bool:
        """Whether a break needs no further run. What base breaks too in a cluster, for a reason of
        its own, says nothing about a cluster with other features: each set of features has its own
        tries."""
        key, tries = found.key, self._tries
        _, trial = self.undecided.get(key, (None, None))
        reported = self._is_introduced(key) or (trial is not None and trial.parts >= TRIALS)
        known = bool(key.by) and any(other.by == key.by for other in self.on_base.keys_broken)
        known = known or self._is_death_of_base(key)
        in_all = sum(number for (of, _), number in tries.items() if of == key)
        over = tries[key, features_of(found)] >= TRIES or in_all >= TRIES_IN_ALL
        return reported or known or over

    def _is_death_of_base(self, key: Key) -> bool:
        """Whether base dies like this in some run: after such an event, in such cache groups, by
        the same statement. A head that dies of it more often has not brought the mistake."""
        return bool(key.death) and key in self.on_base.keys_broken

    def _is_introduced(self, key: Key) -> bool:
        """Whether a break is told. A death is told once, whatever engines die of it."""
        told = (one.found.key for one in self.introduced)
        named = bool(key.statement)  # an endless call has none
        return any(each == key or (named and each.dies_of == key.dies_of) for each in told)

    def of_base(self) -> Iterator[tuple[Class, Confirmed]]:
        """What became on head of each break of base that both do not show in one run. It is mended
        only where head takes its run to the end; it is not reported where base does not show it
        again. Raises Ended."""
        shared = {each.key for _, each in self.still_there()}
        of_head = self.on_head.keys_broken
        tried: dict[Key, list[Candidate]] = {}
        for candidate in of_each(self.on_base, self.names):
            if candidate.found.key not in shared:
                tried.setdefault(candidate.found.key, []).append(candidate)
        for key, candidates in tried.items():
            elsewhere = any(alike(key, other) for other in of_head)
            if (classed := self._on_head(key, candidates[:TRIES], elsewhere)) is not None:
                yield classed

    def _on_head(
        self, key: Key, candidates: Sequence[Candidate], elsewhere: bool
    ) -> tuple[Class, Confirmed] | None:
        """What became of a break of base, by the first of these runs that says it."""
        classed: tuple[Class, Confirmed] | None = None
        for name, found in candidates:
            run = as_run(name, found)
            [(base, head)] = self.results([run], reach=True)
            if not the_same(key, base):
                continue
            one = Confirmed(name, found, frozenset(head.reached))
            if (shown := same(key, head)) is not None:
                return "still there", one._replace(found=shown)
            parts_at = next((pair.parts_at for pair in pairs(base, head)), None)
            why = head.reason or parting(found, base.course, head.course, parts_at)
            if not why and elsewhere:
                why = "head takes this run without it, and breaks the same check in another"
            if not why:
                return "mended", one
            classed = classed or ("not comparable", one._replace(parting=why))
        return classed

    def still_there(self) -> list[tuple[str, Break]]:
        """What both sides break in one run: the workload and the shortest run on head, one for each
        key. A known finding has its cause on both, so its runs may be two."""
        on_base = self.on_base.keys_broken
        shortest: dict[Key, tuple[str, Break]] = {}
        for name in self.names:
            both = self.on_base[name].keys.keys()
            for key, each in self.on_head[name].keys.items():
                kept = shortest.get(key)
                shared = key in both or key in self.on_both or (key.by and key in on_base)
                shared = shared and not self._is_introduced(key)
                if shared and (kept is None or each.length < kept[1].length):
                    shortest[key] = name, each
        return list(shortest.values())

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
