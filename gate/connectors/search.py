"""Random episodes of a connector: Hypothesis draws plans, and one that breaks a check is made
smaller."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kvproof.gate.difference.judged import Break
from kvproof.gate.side.connector_plans import PlayedPlan
from kvproof.live.connectors.accepted import NotAccepted, accepted
from kvproof.live.connectors.drawn import draw_plans
from kvproof.live.connectors.episode import RefusedPlan
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.strategies.shrinking import shrunk

TRIES_MAX = 150
"""The largest number of smaller plans that are tried."""

Progress = Callable[[int, int], None]
"""Called after each episode with the number of episodes and of worker steps so far."""


Known = Callable[[list[Break]], Mapping[str, str]]
"""The checks whose breaks a known finding of vLLM explains, each with its name."""


class RuleBroken(Exception):
    """The plan of the episode breaks a check."""


@dataclass
class PlanSearch(NotAccepted):
    """The progress and the result of a search: the smallest plan found that breaks a check, as it
    was `played`, and the id of the gravest check that it breaks in a new way, its `rule`.
    `tolerated` counts findings that are less severe than `fail_on`, `known` those that a known
    finding explains, by its name. `unplayed` counts the plans that this vLLM does not take, by the
    reason. `tries` counts the episodes that made the plan smaller; `episodes` and the judged
    numbers do not include them. `before` is the plan that was found first, before it was made
    smaller. `needs_earlier` says that the plan breaks its check only after earlier episodes."""

    fail_on: Severity = FAIL_ON
    episodes: int = 0
    steps: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    times_judged: Counter[str] = field(default_factory=Counter)
    rule: str = ""
    played: PlayedPlan | None = None
    before: PlayedPlan | None = None
    needs_earlier: bool = False
    tolerated: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    unplayed: Counter[str] = field(default_factory=Counter)
    tries: int = 0

    @property
    def nothing_judged(self) -> bool:
        """Whether nothing of a connector's purpose was judged: no load was promised, and no saved
        content was read."""
        return not (self.judged["promised tokens"] or self.judged["saved hidden states"])

    @property
    def breaks(self) -> list[Break]:
        """What the plan breaks first, the gravest first: what no known finding explains before the
        rest."""
        found = self.played.first(self.fail_on) if self.played is not None else []
        return sorted(found, key=lambda each: each.signature.check != self.rule)

    def take(self, one: PlayedPlan, known: Known = lambda _: {}) -> bool:
        """Count an episode. Returns whether it breaks a check; then it is kept. If known findings
        explain all that it breaks, it counts as `known` only."""
        if self.played is None:
            self.episodes += 1
            self.steps += one.result.steps
            self.judged += one.result.judged
            self.times_judged += one.result.times_judged
        else:
            self.tries += 1
        grave = one.first(self.fail_on)
        if self.rule and self.rule not in {each.signature.check for each in grave}:
            return False
        if not grave:
            self.tolerated.update(each.signature.check for each in one.first()[:1])
            return False
        names = known(grave)
        new = [each.signature.check for each in grave if each.signature.check not in names]
        if not new and not self.rule:
            self.known.update({*names.values()})
        if not new or self.rule not in ("", *new):
            return False
        self.rule, self.played = self.rule or new[0], one
        self.before = self.before or one
        return True


def search(
    subject: TestedConnector,
    examples: int,
    start: int,
    *,
    overlaps: bool = True,
    shrinks: bool = True,
    found: PlanSearch | None = None,
    progress: Progress = lambda _episodes, _steps: None,
    known: Known = lambda _: {},
) -> PlanSearch:
    """Play random plans until one breaks a check for a cause that is not `known`. `start` is the
    seed; `shrinks` says whether the plan is made smaller. The results are in `found`, also if an
    interruption ends the search."""
    found = PlanSearch() if found is None else found
    kinds = accepted(subject, found)
    shows: dict[ConnectorPlan, bool] = {}
    """Whether each plan breaks a check in a new way. Hypothesis takes some of them again, and a
    connector that kept what another episode stored might come to something else then."""

    def breaks(plan: ConnectorPlan) -> bool:
        try:
            new = found.take(PlayedPlan(subject.name, subject, plan), known)
        except RefusedPlan as error:
            found.unplayed[error.why] += 1
            return False
        progress(found.episodes, found.steps)
        return new

    def episode(plan: ConnectorPlan) -> None:
        if plan not in shows:
            shows[plan] = breaks(plan)
        if shows[plan]:
            raise RuleBroken

    with suppress(RuleBroken):
        draw_plans(subject, kinds, examples, start, episode, overlaps)
    if shrinks and found.played is not None:
        shrunk(found.played.plan, breaks, TRIES_MAX)
    return found
