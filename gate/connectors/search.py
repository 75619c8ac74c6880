"""Random episodes of a connector: Hypothesis draws plans, and one that breaks a check is made
smaller."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kvproof.live.connectors.accepted import NotAccepted, accepted
from kvproof.live.connectors.drawn import draw_plans
from kvproof.live.connectors.episode import EpisodeResult, RefusedPlan, play
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.strategies.shrinking import shrunk

TRIES_MAX = 150
"""The largest number of smaller plans that are tried."""

Progress = Callable[[int, int], None]
"""Called after each episode with the number of episodes and of worker steps so far."""


Known = Callable[[ConnectorPlan], Mapping[str, str]]
"""The checks that a plan breaks and that a known finding of vLLM explains, each with its name."""


class RuleBroken(Exception):
    """The plan of the episode breaks a check."""


@dataclass
class PlanSearch(NotAccepted):
    """The progress and the result of a search: the smallest plan found that breaks a check, and its
    result. `tolerated` counts findings that are less severe than `fail_on`, `known` those that a
    known finding explains, by its name. `unplayed` counts the plans that this vLLM does not take,
    by the reason. `tries` counts the episodes that made the plan smaller; `episodes` and the judged
    numbers do not include them. `first` is the plan that was found first, and its result, before it
    was made smaller. `needs_earlier` says that the plan breaks its check only after earlier
    episodes."""

    fail_on: Severity = FAIL_ON
    episodes: int = 0
    steps: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    times_judged: Counter[str] = field(default_factory=Counter)
    plan: ConnectorPlan | None = None
    result: EpisodeResult | None = None
    first: tuple[ConnectorPlan, EpisodeResult] | None = None
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
    def rule(self) -> str:
        """The id of the broken check; empty if no check is broken."""
        return self.result.findings[0].invariant if self.result is not None else ""

    def take(self, plan: ConnectorPlan, result: EpisodeResult, known: Known | None = None) -> bool:
        """Count an episode. Returns whether it breaks a check; then the plan and its result are
        kept. If known findings explain all its broken checks, it counts as `known` only."""
        if self.plan is None:
            self.episodes += 1
            self.steps += result.steps
            self.judged += result.judged
            self.times_judged += result.times_judged
        else:
            self.tries += 1
        grave = [f for f in result.findings if CONTRACT[f.invariant].severity <= self.fail_on]
        if self.rule and not grave:
            return False
        if not grave:
            self.tolerated.update(f.invariant for f in result.findings[:1])
            return False
        if self.rule and grave[0].invariant != self.rule:
            return False
        names = known(plan) if known is not None else {}
        if all(each.invariant in names for each in grave):
            if not self.rule:
                self.known.update({names[each.invariant] for each in grave})
            return False
        self.plan, self.result = plan, result
        self.first = self.first or (plan, result)
        return True


def search(
    subject: TestedConnector,
    examples: int,
    start: int,
    *,
    overlaps: bool = True,
    shrinks: bool = True,
    found: PlanSearch | None = None,
    progress: Progress | None = None,
    known: Known | None = None,
) -> PlanSearch:
    """Play random plans until one breaks a check for a cause that is not `known`. `start` is the
    seed; `shrinks` says whether the plan is made smaller. The results are in `found`, also if an
    interruption ends the search."""
    found = PlanSearch() if found is None else found
    kinds = accepted(subject, found)
    played: dict[ConnectorPlan, EpisodeResult | None] = {}
    """What each plan has come to. Hypothesis takes some of them again, and a connector that kept
    what another episode stored might come to something else then."""

    def broken(plan: ConnectorPlan) -> EpisodeResult | None:
        """The result of an episode that breaks a rule in a new way."""
        try:
            result = play(subject, plan)
        except RefusedPlan as error:
            found.unplayed[error.why] += 1
            return None
        breaks = found.take(plan, result, known)
        if progress is not None:
            progress(found.episodes, found.steps)
        return result if breaks else None

    def episode(plan: ConnectorPlan) -> None:
        if plan not in played:
            played[plan] = broken(plan)
        if played[plan] is not None:
            raise RuleBroken

    with suppress(RuleBroken):
        draw_plans(subject, kinds, examples, start, episode, overlaps)
    if shrinks and found.plan is not None:
        shrunk(found.plan, lambda plan: broken(plan) is not None, TRIES_MAX)
    return found
