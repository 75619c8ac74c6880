"""What a watched engine is asked after each event, and what is done with the answers."""

from collections import Counter
from collections.abc import Callable, Iterable

from kvproof.invariants.invariant import EachEngine, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live.watch.history import History
from kvproof.live.watch.noted import Noted
from kvproof.model.events import Event, Schedule
from kvproof.model.finding import Finding
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step

OF_BLOCKS = (
    "pool_adds_up",
    "references_are_exact",
    "no_block_free_and_held",
    "hash_map_is_sound",
)
OF_CONTENT = ("cached_block_holds_its_key", "cached_key_can_be_hit")
OF_REQUESTS = (
    "table_fits_its_tokens",
    "counter_counts_only_cached",
    "no_more_is_held_than_is_read",
)
ALLOCATIONS = "predicted_is_taken"
OF_STEPS = (
    ALLOCATIONS,
    "request_reads_its_own_prefix",
    "state_read_is_state_at_computed",
    "null_block_is_nobody",
)


AT_IDLE = ("all_blocks_return",)

ALL = (*OF_BLOCKS, *OF_CONTENT, *OF_REQUESTS, *OF_STEPS, *AT_IDLE, "engine_survives")


class Violation(Exception):
    """An invariant does not hold on a running engine."""


class Judge:
    """Asks the invariants. `report` is called for each finding. `skipped` has the invariants that
    mean nothing on this engine, with the reason."""

    passed_on = (Violation,)

    def __init__(self, report: Callable[[Finding, History], None]) -> None:
        self.report = report
        self.asked: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.why_off = self.by_hand = ""

    def look(self, seen: Noted, what: str) -> None:
        """Judge what an event has touched."""
        slices = seen.slices
        if blocks := [block for block in seen.blocks if block >= 0]:
            self._ask(seen, OF_BLOCKS, slices.of_blocks(blocks), len(blocks))
        if what == "schedule":
            effects = Effects(reads=tuple(seen.reads), allocations=tuple(seen.allocations))
            if effects != Effects():
                self._steps(seen, effects)
        for finding in self._ask(seen, OF_CONTENT, *slices.of_content(seen.named)):
            # else all that reads the block would be found wrong, too
            seen.contents.forget(finding.about.block or 0)
        if held := [each for each in seen.touched_requests() if any(each.tables)]:
            self._ask(seen, OF_REQUESTS, slices.of_requests(held), len(held))
        if seen.idle:
            self._ask(seen, AT_IDLE, slices.of_pool(), 1)

    def _ask(self, seen: Noted, names: Iterable[str], engine: Engine, judged: int) -> list[Finding]:
        """Ask about a part of an engine, in which so many blocks or requests are judged."""
        cluster, found = seen.cluster, []
        for name in names:
            if name in self.skipped:
                continue
            check = INVARIANTS[name].check
            assert isinstance(check, EachEngine)
            self.asked[name] += judged
            found += [Finding(name, *each) for each in check.of(cluster, engine)]
        for finding in found:
            self.report(finding, seen.history)
        return found

    def _steps(self, seen: Noted, effects: Effects) -> None:
        cluster = seen.cluster
        resumed = sum(1 for each in seen.admitted if each.hit + each.external)
        asked = dict.fromkeys(OF_STEPS, resumed) | {ALLOCATIONS: len(effects.allocations)}
        nothing = State((Engine(cluster.engines[0].name, (), ()),))
        event: Event = Schedule(cluster.engines[0].name, ())
        step = Step(nothing, event, effects, nothing)
        for name in OF_STEPS:
            self.asked[name] += asked[name]
            for finding in broken(cluster, step, [INVARIANTS[name]]):
                self.report(finding, seen.history)

    def died(self, seen: Noted, what: str, error: Exception) -> None:
        """vLLM raised an exception."""
        self.asked["engine_survives"] += 1
        why = f"{seen.cfg.name} died: {type(error).__name__}: {error}"
        finding = Finding("engine_survives", (f"every engine must survive {what}", why))
        self.report(finding, seen.history)

    def failed(self, error: BaseException) -> None:
        """kvproof itself made a mistake, and watches no more."""
        self.why_off = f"{type(error).__name__}: {error}"

    def stopped(self, why: str) -> None:
        """The engine was changed by hand, and what it does from now on says nothing."""
        self.by_hand = why
