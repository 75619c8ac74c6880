"""What earlier requests of an engine have computed and loaded, and what has happened since: so that
a look-up of a prompt, or a load, can be compared with it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

from kvproof.invariants.arithmetic import in_common
from kvproof.model.config import EngineConfig
from kvproof.model.facts.connectors import Alike, LookedUp, Since


@dataclass
class EarlierRequest:
    """The first tokens of a request that steps have computed, and what its KV depends on `beside`.
    Tokens from `answer` on are an answer that the connector is not set to store; None if it is."""

    beside: str
    tokens: str
    answer: int | None


class EarlierRequests:
    """The requests of which steps have computed tokens, by name. The connector `keeps` each prompt
    by the word of its author. `failed` says that what is behind it may have lost something."""

    def __init__(self, cfg: EngineConfig, keeps: bool) -> None:
        self.failed = False
        self._known: dict[str, EarlierRequest] = {}
        self._since: defaultdict[str, set[Since]] = defaultdict(lambda: {"runs"})
        self._drop, self._size = cfg.eagle_drop_tokens, max(cfg.block_sizes, default=1)
        self._cached, self._keeps = cfg.prefix_caching, keeps
        self._states = not all(group.attention for group in cfg.groups)
        self._windows = any(group.window for group in cfg.groups)

    def compute(self, name: str, beside: str, tokens: str, answer: int | None) -> None:
        """Record that steps have computed these first tokens of a request."""
        known = self._known.setdefault(name, EarlierRequest(beside, "", answer))
        if len(tokens) > len(known.tokens):
            known.tokens = tokens

    def end(self, name: str, *, well: bool) -> None:
        """Record the end of a request. What it computed is expected to be stored when the engine is
        idle."""
        self._since[name].discard("runs")
        self._since[name].update(("not idle",) if well else ("not idle", "aborted"))

    def settle(self) -> None:
        """Record that the engine is idle, so that the connector has had the time to store."""
        for since in self._since.values():
            since.discard("not idle")

    def reset(self, running: Iterable[str]) -> None:
        """Record a reset of the connector's cache. What requests compute that run now may be stored
        before it or after it."""
        self.happened("reset", (*self._known, *running))

    def happened(self, what: Since, names: Iterable[str]) -> None:
        """Record what has happened since these requests computed their tokens."""
        for name in names:
            self._since[name].add(what)

    def restart(self, *, another: bool) -> None:
        """Record that another process has started an engine. KV of another model, or of values of
        another type, must not be offered."""
        if another:
            self._known.clear()
        self.happened("restart", self._known)

    def fresh(self, beside: str, prompt: str) -> int:
        """The number of first tokens of a prompt that steps computed since the last reset."""
        fresh = (each for name, each in self._known.items() if "reset" not in self._since[name])
        of_it = (in_common(prompt, each.tokens) for each in fresh if each.beside == beside)
        return max(of_it, default=0)

    def look_up(
        self, name: str, beside: str, prompt: str, tokens: int, *, later: bool, skips: bool
    ) -> LookedUp | None:
        """The look-up of a prompt that begins as earlier ones, None if none has a whole block of
        it. `tokens` are offered, those that the engine has are among them. `later` says that the
        connector asks to be asked again, and `skips` that the request must compute its prompt."""
        always: dict[Since, bool] = {
            "asked later": later,
            "computes all": skips,
            "may not keep": not self._keeps,
            "no prefix cache": not self._cached,
            "failed": self.failed,
            "states": self._states,
        }
        common = {*compress(always, always.values())}
        longest: dict[tuple[Since, ...], int] = {}
        for other, known in self._known.items():
            if other == name or known.beside != beside:
                continue
            for whole, more in self._whole(known, prompt):
                since = tuple(sorted(self._since[other] | common | more))
                longest[since] = max(longest.get(since, 0), whole)
        alike = tuple(Alike(whole, since) for since, whole in longest.items() if whole)
        return LookedUp(name, tokens, alike) if alike else None

    def _whole(self, known: EarlierRequest, prompt: str) -> Iterator[tuple[int, set[Since]]]:
        """The number of tokens that a prompt shares with an earlier one, in blocks that are whole
        in each group, with the reasons for which fewer may be offered. The last token of the prompt
        must be computed. Of a window group, a connector need only keep the blocks with which the
        same prompt resumes, without its last token."""
        shared, stored = in_common(prompt, known.tokens), known.tokens[: known.answer]
        resumes = self._windows and prompt.startswith(stored)
        within: set[Since] = {"window"} if self._windows and not resumes else set()
        ends: list[tuple[int, set[Since]]] = [(min(shared, len(stored)) - resumes, within)]
        if shared > len(stored):
            ends.append((shared, {"answer", *within}))
        for end, more in ends:
            whole = min(end, len(prompt) - 1) // self._size * self._size
            yield (whole - self._drop) // self._size * self._size, more
            if self._drop:
                yield whole, {"drafter", *more}


class _Load(NamedTuple):
    """A load of the tokens of a prompt from `start` to `end`. Its KV depends on `beside` too."""

    beside: str
    prompt: str
    start: int
    end: int

    def common(self, other: "_Load") -> int:
        """The number of tokens that both loads bring."""
        if self.beside != other.beside:
            return 0
        end = min(self.end, other.end, in_common(self.prompt, other.prompt))
        return max(end - max(self.start, other.start), 0)


class EarlierLoads:
    """The loads of an engine since it was started, but for those that failed."""

    def __init__(self) -> None:
        self._last: dict[str, _Load] = {}
        self._before: list[_Load] = []

    def begin(
        self, name: str, beside: str, prompt: str, start: int, end: int, going: Collection[str]
    ) -> tuple[int, int]:
        """Record the load of a request. Returns how many of its tokens another load in progress
        brings too, the most of those of the requests `going`, and how many one that is over has
        brought."""
        load = _Load(beside, prompt, start, end)
        if name in self._last:
            self._before.append(self._last.pop(name))
        going = {*going} & {*self._last}
        over = (each for other, each in self._last.items() if other not in going)
        under_way = max((load.common(self._last[other]) for other in going), default=0)
        before = max((load.common(each) for each in (*self._before, *over)), default=0)
        self._last[name] = load
        return under_way, before

    def fail(self, name: str) -> None:
        """Record that the load of a request has failed."""
        self._last.pop(name, None)
