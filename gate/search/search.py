"""The search of a comparison: which workloads are driven, in which order, and for how long.

A look comes first: traces, without being judged, or plans for connectors and engines, until one
reaches a function that head changes. Where nothing does, there is no search. Which workloads come
next, and why, is in docs/explanation/judging.md ("What is run"); the order depends on the seed and
the two trees only. Between these, at once, the kinds of runs in which base and head part are driven
further (`further`). Where runs have not executed all of the change, many random clusters are looked
at for what is left (`scouts`).

The search ends when something is introduced, when the change is known (`Search._is_known`), or with
the time.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from math import ceil
from time import perf_counter

from kvproof.gate.difference.order import covering, ordered, touched
from kvproof.gate.difference.protocol import KitConnector
from kvproof.gate.difference.workload import Engines, Follow, Plays, Workload
from kvproof.gate.search import named_features, workloads
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.costs import Weighing
from kvproof.gate.search.further import Differing, Further
from kvproof.gate.search.reaching import Reaching
from kvproof.gate.search.scouts import Scouts
from kvproof.gate.source.changes import USED, Changes, unreached
from kvproof.gate.source.parts import CONNECTED, LOOP, NIXL, STARTED
from kvproof.model import interruption
from kvproof.strategies.sampling.stateful import unseen_at_most

TRACES_AT_ONCE, SAMPLED_AT_ONCE = 20, 4
"""The number of workloads between two looks at what differs."""

ENGINES_FIRST = 8
"""How many workloads of engines come first where they reach what is changed."""

LOOKS = 4
"""How many times the connectors whose code is changed are looked at, as long as their plans reach
nothing of the change."""

PLANS_FIRST = 5
"""How many workloads the connectors that reach what is changed have first, at least one each."""

UNSEEN_MAX = 0.02
"""The search may end where no larger share of further random workloads that execute a change may
show a difference of base and head, of which there was none (docs/explanation/judging.md)."""

PLANS_NAMED = 15
"""How many they have where the changed lines name what only plans have: clusters execute such a
change too, but without what it is about."""

APART = "runs in which base and head part"

Show = Callable[[str], None]


class Search:
    """The search. `until` is when the last workload may begin, by `time.monotonic`, once something
    is introduced, which must be shrunk and written, or is suspected; else it may begin up to
    `longest`. `fails` says whether what was confirmed so far is enough to end. `connected` are the
    changed functions of connectors and of what only they reach, and `paired` those that plans of a
    pair of engines reach as clusters do; `connectors` are the names of those that can be driven,
    and `reaching` of those that reach what is changed. `sized` says that head changes what engines
    reach best, and `engines` that they reach something of what is changed. `loop_only`
    says that head changes the loop of the engine alone, which nothing else reaches. `by_traces`
    says whether the traces reach it, None if nobody looked; clusters are `followed` where they may
    reach it. `cut_short` says that the time ended
    while the search looked for what reaches the change. `not_run` has what the end of the search
    left out, and `missing` that part of it without which head cannot be judged: the first workloads
    of each kind that reaches the change, `left_s` its seconds. `named` are the features that
    changed statements name: clusters with these come first. Half of the plans for connectors are
    `about` the traits of cache groups that they name. `in_plans` are the subjects of plans that
    they name: these are driven beside the traces, which have none of it. Where they name what an
    engine and its connector tell each other, plans for `others`, one connector for each part of
    vLLM that has some, come between the traces and the presets: traces have a P/D connector alone.
    Runs with the options that they name come before other random ones."""

    def __init__(
        self,
        comparison: Comparison,
        changes: Changes,
        until: float,
        fails: Callable[[], bool],
        show: Show,
        longest: float | None = None,
        weighing: Weighing | None = None,
    ) -> None:
        ours = changes.accounting
        parts = {each.part for each in ours}
        self.comparison = comparison
        self.changes = changes
        self.changed = [each.key for each in ours]
        self.statements = [key for each in ours for key in each.statements]
        self.connected = [each.key for each in ours if each.part in CONNECTED]
        self.paired = [each.key for each in ours if each.part == NIXL]
        self.models = named_features.models(ours)
        in_loops = named_features.in_loops(ours) or "pools" in self.models
        self.sized = bool(parts & STARTED) or in_loops
        self.loop_only = parts <= {LOOP}
        self.named = named_features.named(ours)
        awaited = [key for each in changes.judged for key in each.awaited]
        further = Further(comparison.seed)
        self.differing = Differing(comparison, further)
        self.near = Reaching(comparison, further, [*self.changed, *awaited])
        self.scouts = Scouts(comparison, self.named)
        self.about = named_features.traits(ours)
        self.in_plans = named_features.in_plans(ours)
        self.connecting = named_features.connecting(ours)
        self.until = until
        self.longest = until if longest is None else longest
        self.weighing = weighing or Weighing(comparison)
        self.fails = fails
        self.show = show
        self.engines = False
        self.connectors: Sequence[KitConnector] = ()
        self.reaching: list[str] = []
        self.called: dict[str, frozenset[str]] = {}
        self.by_traces: bool | None = None
        self.traces: list[Follow] = []
        self.not_run: list[str] = []
        self.missing: list[str] = []
        self.left_s = 0.0
        self._took: dict[str, tuple[int, float]] = {}
        self._steps_apart = 0
        self.cut_short = False
        self._due = True
        self._known = (0, False)
        self._suspects = (0, False)
        self._only_rest = False
        self.followed = False
        self._combined: Iterator[Workload] = iter(())
        self._random: Iterator[Workload] = iter(())

    @cached_property
    def others(self) -> list[str]:
        """One connector for each part of vLLM that has some, beside those that were looked at
        first; none where the change does not name what an engine and its connector tell each
        other."""
        if not self.connecting or self.connected or self.paired:
            return []
        found = {each.home: each.name for each in reversed(self.connectors)}
        return [name for name in reversed([*found.values()]) if name not in self.called]

    def prepare(self) -> None:
        """Compute the runs of the model that show the faults, which takes some seconds."""
        found = [*workloads.of_findings(), *workloads.of_faults()]
        self.traces = sorted(
            found, key=lambda each: -named_features.shared(each.cluster, self.named)
        )

    def reaches(self) -> bool:
        """Whether a quick look reaches a function that head changes. Also where nothing could be
        driven: then the search says why. Raises Ended."""
        if self.sized:
            self._look_at_engines()
        reaching = self._look_at_connectors((True, False) if self.connected else (True,))
        if self.connected or self.paired:
            self.reaching = reaching
        if self.engines or self.reaching or self.loop_only:
            return bool(self.engines or self.reaching)
        self.by_traces = self._traces_reach()
        # Traces reach what they call, without images and statistics.
        if not (self.connected or self.paired):
            self.reaching = [name for name in reaching if name in self.in_plans]
        if not (self.by_traces or self.connected):
            self._look_at(self.others)
            near = [name for name in self._found() if name in self.others]
            self.reaching = [*reaching, *near] or self._look_at_connectors((False,))
        if not (self.by_traces or self.reaching or {*self.connected} >= {*self.changed}):
            if not (self.sized or self._time_is_up()):  # engines have layers that clusters lack
                self._look_at_engines()
            self.by_traces = not self.engines and self._scouts_reach()
        return self.by_traces or bool(self.reaching) or self.engines

    def _look_at_engines(self) -> None:
        """Start engines and run their loops, and note whether this reaches what is changed."""
        self.show("engines ...")
        first = self._part_of_engines(0)
        self.comparison.confirm(self.comparison.drive(first))
        self.engines = any(touched(self._called(each.name), self.changed) for each in first)

    def _part_of_engines(self, part: int) -> list[Workload]:
        """Random engines; before them those with the kinds of models that the change names."""
        seed = self.comparison.seed
        return [workloads.of_engines(seed, part, kind) for kind in (*self.models, "")]

    def _look_at_connectors(self, homes: Sequence[bool]) -> list[str]:
        """Drive connectors that vLLM ships: those whose code is changed (`homes` has True), the
        nearest first, and again where they reach nothing of it; and the others (False) where these
        do not reach all that is changed. Returns the names of those that reach some of it."""
        files = {key.partition(":")[0] for key in self.changed}
        near = {c.name: max(map(c.near, files), default=0) for c in self.connectors}
        near |= {name: near[name] or 1 for name in self.in_plans & {*near}}
        for wanted in homes:
            names = sorted(
                (name for name in near if bool(near[name]) is wanted), key=lambda name: -near[name]
            )
            for look in range(LOOKS if wanted else 1):
                self._look_at(names, look)
                if self._found():
                    break
            if {*self.changed} <= touched(frozenset().union(*self.called.values()), self.changed):
                break
        return self._found()

    def _look_at(self, names: Sequence[str], look: int = 0) -> None:
        """Drive a few plans of each of these connectors, and note what they call."""
        these = workloads.of_connectors(names, self.comparison.seed, look, self.about, look=True)
        for first in range(0, len(these), SAMPLED_AT_ONCE):
            if self._over():
                break
            self.show(f"connectors: {first} of {len(these)}")
            part = these[first : first + SAMPLED_AT_ONCE]
            self.comparison.confirm(self.comparison.drive(part))
            for each in part:
                known = self.called.get(each.connector, frozenset())
                self.called[each.connector] = known | self._called(each.name)

    def _found(self) -> list[str]:
        """The connectors that were looked at and reach some of what is changed."""
        names = ordered([*self.called], self.called, self.changed)
        return [name for name in names if touched(self.called[name], self.changed)]

    def _called(self, name: str) -> frozenset[str]:
        """The functions that a workload called, on either side; none where a side cannot be
        driven."""
        both = self.comparison
        cannot = both.on_base[name].reason or both.on_head[name].reason
        return frozenset() if cannot else both.reached(name)

    def _traces_reach(self) -> bool:
        """Whether some trace reaches what is changed, and whether none could be driven."""
        if not self.traces:
            self.prepare()
        driven = False
        for first in range(0, len(self.traces), TRACES_AT_ONCE):
            if self._time_is_up():
                self.cut_short = True
                return False
            self.show("looking for what reaches the changed functions ...")
            part = self.traces[first : first + TRACES_AT_ONCE]
            both = self.comparison.glance(part)
            called = {name for two in both for result in two for name in result.reached}
            if touched(called, self.changed):
                return True
            driven = driven or not all(head.reason for _, head in both)
        return not driven

    def _scouts_reach(self) -> bool:
        """Whether some random cluster reaches what is changed."""
        while self.scouts.left and not self.scouts.found and not self._time_is_up():
            self._look_for(self.changed)
        self.cut_short = self.cut_short or bool(self.scouts.left and not self.scouts.found)
        return bool(self.scouts.found)

    def _look_for(self, missing: Collection[str]) -> None:
        """Look for clusters that execute something of what is missing."""
        self.show(f"looking for what executes the rest: {self.scouts.left} clusters are left")
        self.scouts.look(missing)

    def run(self) -> None:
        """Search. Raises Ended, and KeyboardInterrupt."""
        nearest, engines = self._nearest(), self._more_engines()
        number = PLANS_NAMED if self.in_plans.intersection(nearest) else PLANS_FIRST
        rounds = ceil(number / max(len(nearest), 1))
        first = [*islice(self._plans(nearest), rounds * len(nearest))]
        alone = {*self.connected} == {*self.changed}
        self._all(first if alone else [], "plans for connectors")
        if self.engines:
            self._all([*islice(engines, ENGINES_FIRST)], "engines")
        if self.by_traces is None and not self._over():
            self.by_traces = self._traces_reach()
        self.followed = self.by_traces or not (self.reaching or self.engines)
        rest = self._drive_traces() if self.followed else []
        self._all([] if alone else first, "plans for connectors")
        self._drive(self._with_options(), "runs with options that kvproof does not model")
        self._where_they_differ()
        kinds = workloads.of_connectors(self.others, self.comparison.seed, 0, look=True)
        unseen = [each for each in kinds if each.connector not in self.called]
        self._drive(unseen, "connectors of each kind")
        self._where_they_differ()
        self._due = self.followed
        others = self._drive_clusters(rest) if self.followed else []
        near = dict.fromkeys([*self.reaching, *self.others])  # else some plans would count twice
        plans = self._plans([*near] or [each.name for each in self.connectors], rounds)
        presets = iter(others)
        while not self._over():
            self._drive_round(presets, plans, engines)
        if left := len([*presets]):
            self.not_run.append(f"{left} of {len(others)} further presets and traces")

    def _with_options(self) -> list[Workload]:
        """Runs with each option of vLLM's configs that the change names, of what reaches it."""
        seed, nearest = self.comparison.seed, self.reaching[:1]
        found = (workloads.with_option(o, nearest, seed) for o in self.changes.options)
        driven = Plays, *[Engines] * self.engines
        return [each for some in found for each in some if isinstance(each, driven)]

    def _drive_traces(self) -> list[Follow]:
        """Drive one trace of each cluster. Returns the others."""
        if not self.traces:
            self.prepare()
        firsts = {each.cluster.name: each for each in reversed(self.traces)}
        named = {each.name for each in firsts.values()}
        self._all([each for each in self.traces if each.name in named], "traces")
        self._where_they_differ()
        if not (self.sized or self._over()):
            self._look_at_engines()
        return [each for each in self.traces if each.name not in named]

    def _drive_clusters(self, traces: Sequence[Follow]) -> list[Workload]:
        """Drive further traces on the clusters that reach what is changed, clusters with the named
        features, and presets. Returns the presets and traces that are left."""
        names = {each.cluster.name for each in traces}
        reach = {name for name in names if touched(self._reached(name), self.changed)}
        close = [each for each in traces if each.cluster.name in reach]
        self._all(close or traces, "further traces")
        self._combined = named_features.combined(self.named, self.comparison.seed)
        first_of_all = [*islice(self._combined, named_features.COMBINED)]
        self._all(first_of_all, "clusters with the named features")
        self._where_they_differ()
        presets, further = self._presets()
        self._all(self._episodes(presets), "presets")
        self._where_they_differ()
        self._due = False
        random = workloads.of_random_clusters(self.comparison.seed)
        both = (named_features.preferred(random, self.named), self.near.alike(random))
        self._random = (each for two in zip(*both, strict=False) for each in two)
        left = [each for each in traces if close and each not in close]
        return [*self._episodes(further), *left]

    def _drive_round(
        self, presets: Iterator[Workload], plans: Iterator[Workload], engines: Iterator[Workload]
    ) -> None:
        """Drive some of each kind. Where only the rest of the change is left to be executed, no
        more than what may execute it."""
        self._where_they_differ()
        missing = self._missing() if self.followed and self.scouts.left else set()
        if missing:
            self._look_for(missing)
        only_scouts = missing and self._only_rest and self.scouts.left
        self._drive(self.scouts.take(), "clusters that execute the rest")
        if only_scouts:
            return
        self._where_they_differ()
        self._some(self._combined, "clusters with the named features")
        self._some(self._random, "random clusters")
        near = self.near.take(SAMPLED_AT_ONCE) if self.followed else []
        self._drive(near, "clusters near the change")
        needs_plans = self.sized or self.others or self._missing(connected=True)
        if self.followed and self._only_rest and not needs_plans:
            return
        self._some(presets, "further presets")
        self._some(plans, "connectors again")
        self._some(engines, "engines again", SAMPLED_AT_ONCE if self.sized else 1)

    def _where_they_differ(self) -> None:
        """Further runs of the kinds in which base and head part, as long as these take no more
        steps than all others: where the sides part in most kinds, there is still time for what head
        is judged by."""
        while not self._over() and 2 * self._steps_apart <= self._steps(self.comparison.names):
            these = self.differing.take(SAMPLED_AT_ONCE)
            if not these:
                return
            self._drive(these, APART)

    def _nearest(self) -> list[str]:
        """The connectors whose plans come first: those that reach a changed function of connectors,
        if there is one. What else is changed, the traces reach better."""
        of_connectors = [*self.connected, *self.paired]
        if not of_connectors:
            return self.reaching[:PLANS_FIRST] if self.others else self.reaching
        return [name for name in self.reaching if touched(self.called[name], of_connectors)]

    def _plans(self, names: Sequence[str], after: int = 0) -> Iterator[Workload]:
        """Further plans for these connectors, without end, from the part `after` on: for those of
        them that execute functions of which something is missing, if there are such."""
        for part in count(1 + after) if names else ():
            these = self._near_the_rest(names) if self._only_rest else names
            yield from workloads.of_connectors(these, self.comparison.seed, part, self.about)

    def _near_the_rest(self, names: Sequence[str]) -> Sequence[str]:
        """Those of these connectors whose plans execute a function of which something is missing;
        all where none does."""
        so_far = self.comparison.reached_by()
        partly = [each.key for each in self.changes.judged if each.awaited - so_far]
        near = {
            each.connector
            for name, each in self.comparison.workloads.items()
            if isinstance(each, Plays) and touched(self._called(name), partly)
        }
        return [name for name in names if name in near] or names

    def _more_engines(self) -> Iterator[Workload]:
        """Further engines, without end, where they reach what is changed."""
        for part in count(1) if self.engines else ():
            yield from self._part_of_engines(part)

    def _over(self) -> bool:
        return self.fails() or self._time_is_up() or self._is_known()

    def _time_is_up(self) -> bool:
        return self._left_s() <= 0

    def _left_s(self) -> float:
        """The time in which workloads may begin, in seconds."""
        early = self.comparison.introduced or self._has_suspects()
        return (self.until if early else self.longest) - time.monotonic()

    def _may_weigh(self) -> bool:
        """Whether there is time to weigh something before the search ends."""
        return not self.fails() and time.monotonic() < self.until

    def _has_suspects(self) -> bool:
        """Whether something has to be seen more often in fresh runs, which take time."""
        both = self.comparison
        if self._suspects[0] != len(both.names):
            self._suspects = len(both.names), self.weighing.has_suspects
        return self._suspects[1]

    def _is_known(self) -> bool:
        """Whether the first workloads of each kind were driven, all of the change was executed that
        head is judged by, and so many workloads executed it that few others may show a difference.
        What a change does is not known where it does something: further runs may show that it does
        harm."""
        both = self.comparison
        if self._due or both.counted.apart:
            return False
        if self._known[0] != len(both.names):
            so_far = both.reached_by()
            left = unreached(self.changes.accounting, lambda _: so_far)
            names = {each.key for each in left}
            known = all(each.part == USED for each in left) and len(names) < len(self.changed)
            there = [e for e in self.changes.accounting if not (e.declares or e.key in names)]
            known = known and unseen_at_most(min(both.executing(there), default=0)) <= UNSEEN_MAX
            rest = any(each.awaited - so_far for each in self.changes.judged)
            self._only_rest = known and rest
            self._known = len(both.names), known and not rest
        return self._known[1]

    def _missing(self, connected: bool = False) -> set[str]:
        """What nothing executed so far of the changed functions: of those of connectors, which need
        plans, or of the others."""
        so_far = self.comparison.reached_by()
        ours = [e for e in self.changes.judged if (e.key in self.connected) is connected]
        missing = {each.key for each in unreached(ours, lambda _: so_far)}
        return missing.union(*(each.awaited - so_far for each in ours))

    def _some(self, these: Iterator[Workload], what: str, number: int = SAMPLED_AT_ONCE) -> None:
        """Drive the next of these workloads."""
        self._drive([*islice(these, number)], what)

    def _all(self, these: Sequence[Workload], what: str) -> None:
        """Drive workloads without which head is not judged. Those that the end of the search leaves
        out are noted."""
        if left := self._drive(these, what):
            self.not_run.append(f"{left} of {len(these)} {what}")
            self.missing.append(self.not_run[-1])
            self.left_s += left * self._seconds_each(what)

    def _seconds_each(self, what: str) -> float:
        """How long a workload of this kind takes: as those that were driven, or as the slowest kind
        where none was."""
        each_s = {kind: took_s / number for kind, (number, took_s) in self._took.items()}
        return each_s.get(what, max(each_s.values(), default=0.0))

    def _drive(self, these: Sequence[Workload], what: str) -> int:
        """Drive workloads in parts, and confirm and weigh what differs after each part. Returns how
        many are left out because the search is over."""
        left = list(these)
        traces = all(isinstance(each, Follow) for each in left)
        while left and not self._over():
            interruption.check()
            at_once = self._at_once(what, TRACES_AT_ONCE if traces else SAMPLED_AT_ONCE)
            part, left = left[:at_once], left[at_once:]
            self.show(f"{what}: {len(these) - len(left)} of {len(these)}")
            begin = perf_counter()
            names = self.comparison.drive(part)
            # Also where the time ended the search: what differs must not be lost.
            self.comparison.confirm(names)
            number, took_s = self._took.get(what, (0, 0.0))
            self._took[what] = number + len(part), took_s + perf_counter() - begin
            self._steps_apart += (what == APART) * self._steps(names)
            self.weighing.early(self._may_weigh)
        return len(left)

    def _steps(self, names: Iterable[str]) -> int:
        """The number of steps of these workloads on head."""
        return sum(self.comparison.on_head[name].steps for name in names)

    def _at_once(self, what: str, most: int) -> int:
        """How many workloads of a kind come before the next look at what differs: no more than are
        likely to end in time, which leaves the rest of it to what has to be weighed."""
        each_s = self._seconds_each(what)
        return max(1, min(most, int(self._left_s() / each_s))) if each_s else most

    def _presets(self) -> tuple[list[str], list[str]]:
        """The names of presets that together have every pair of features in which the change is
        reached; and those of the rest, first the ones that reach it too. A preset without a trace
        may reach it. A few that together reach all that the traces reach come first, then those
        with the most features that the change names."""
        found = workloads.of_presets(self.comparison.seed)
        found.sort(key=lambda each: -named_features.shared(each.cluster, self.named))
        presets = [each.cluster.name for each in found]
        reaches = {name: self._reached(name) for name in presets}
        names = ordered(presets, reaches, [*self.changed, *self.statements])
        touching = [name for name in names if touched(reaches[name], self.changed)]
        idle = {each.cluster.name for each in self.traces}.difference(touching)
        pairs = {each.cluster.name: named_features.pairs(each.cluster) for each in found}
        wanted = [*self.changed, *self.statements]
        first = covering(names, {name: touched(reaches[name], wanted) for name in names})
        shares = {e.cluster.name: named_features.shared(e.cluster, self.named) for e in found}
        for share in sorted({*shares.values()}, reverse=True):
            some = [n for n in names if shares[n] == share and n not in idle and n not in first]
            first += covering(some, pairs, [pair for name in first for pair in pairs[name]])
        rest = [name for name in dict.fromkeys([*touching, *names]) if name not in first]
        return first, rest

    def _episodes(self, names: Iterable[str]) -> list[Workload]:
        """Random episodes of these presets."""
        presets = workloads.of_presets(self.comparison.seed)
        found = {each.cluster.name: each for each in presets}
        return [found[name] for name in names]

    def _reached(self, cluster: str) -> frozenset[str]:
        """What the traces on a cluster reach, on either side."""
        return frozenset(
            function
            for trace in self.traces
            if trace.cluster.name == cluster and trace.name in self.comparison.workloads
            for function in self.comparison.reached(trace.name)
        )
