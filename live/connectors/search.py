"""Random episodes of a connector: Hypothesis draws plans, and `smaller` makes one that breaks a
check smaller. The candidates depend on the plan alone, and not on time, so the same seed gives the
same plan."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import fields, replace

from kvproof.live import adapt, build
from kvproof.live.blame import is_ours, is_refusal
from kvproof.live.connectors.drawn import (
    ALONE,
    BUFFERED,
    HIDDEN,
    HYBRID,
    NARROWER,
    SPREAD,
    draw_plans,
    unequal,
)
from kvproof.live.connectors.episode import EpisodeResult, RefusedPlan, play
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.contract.lookup import last_line, may_take
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest
from kvproof.model.severity import FAIL_ON

Progress = Callable[[int, int], None]
"""Called after each episode with the number of episodes and of worker steps so far."""


Known = Callable[[ConnectorPlan], Mapping[str, str]]
"""The checks that a plan breaks and that a known finding of vLLM explains, each with its name."""


class RuleBroken(Exception):
    """The plan of the episode breaks a check."""


@dataclass
class PlanSearch:
    """The progress and the result of a search: the smallest plan found that breaks a check, and its
    result. `tolerated` counts findings that are less severe than a leak, `known` those that a known
    finding explains, by its name. `unmade` has the plans with whose cache groups the connector
    could not be made, and the exception; `lacking` has those whose groups this vLLM cannot have,
    and why. `unplayed` counts the plans that this vLLM does not take, by the reason. `tries` counts
    the episodes that made the plan smaller; `episodes` and the judged numbers do not include them.
    `first` is the plan that was found first, and its result, before it was made smaller.
    `needs_earlier` says that the plan breaks its check only after earlier episodes."""

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
    unmade: dict[ConnectorPlan, Exception] = field(default_factory=dict)
    lacking: dict[ConnectorPlan, str] = field(default_factory=dict)
    unplayed: Counter[str] = field(default_factory=Counter)
    tries: int = 0

    @property
    def refused(self) -> dict[str, str]:
        """`unmade` in words."""
        return {each.words: last_line(why) for each, why in self.unmade.items()}

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
        grave = [f for f in result.findings if CONTRACT[f.invariant].severity <= FAIL_ON]
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


def accepted(
    subject: TestedConnector,
    found: PlanSearch,
    kinds: Sequence[ConnectorPlan] = HYBRID,
    *,
    marked: bool = False,
) -> list[ConnectorPlan]:
    """The plans without requests with whose cache groups the connector can be made. The others are
    recorded as refused, by the connector or, in older releases, by the config of the engine, or as
    lacking in this vLLM. If no groups are left, one of the exceptions is raised again: a refusal on
    purpose, if there is one.

    A drafter has its layers in the groups in which a start-up with an EAGLE head puts them. With
    `marked`, there are also groups of which one alone is marked as the drafter's: these come from a
    start-up with an MTP drafter (`_annotate_eagle_groups`)."""
    layers: list[ConnectorPlan] = []
    raised: list[BaseException] = []
    pairs = unequal(subject.unequal), NARROWER * subject.narrow, BUFFERED * subject.buffered
    spread = [each for several in (SPREAD * subject.ranks, *pairs) for each in several]
    if subject.hidden and not subject.supports_groups:
        raise AdapterDrift("This vLLM gives hidden states no cache group of their own")
    if subject.hidden:
        kinds = HIDDEN
    wanted = [(each, True) for each in (*(kinds if subject.supports_groups else ALONE), *spread)]
    if marked:
        wanted += [(each, False) for each, _ in wanted if each.engine.drafter_is_apart]
    for each, of_eagle_head in wanted:
        if not subject.takes(each.engine.groups, each.local):
            continue
        if lacks := _lacks(each):
            found.lacking[each] = lacks
            continue
        try:
            planned = _as_planned(each, found) if of_eagle_head else each
            if planned is None or planned in layers:
                continue
            each = planned
            play(subject, each)
        except AdapterDrift as drift:
            if drift.entry == adapt.CONFIG:
                raised.append(drift)
            elif not each.of_some:
                raise
            found.lacking[each] = drift.why
        except Exception as error:
            if is_ours(error):
                raise
            found.unmade[each] = error
            raised.append(error)
        else:
            layers.append(each)
    if raised and not layers:
        refusals = (e for e in raised if isinstance(e, Exception) and is_refusal(e))
        raise next(refusals, raised[-1])
    return layers


def _lacks(plan: ConnectorPlan) -> str:
    """What this vLLM lacks for the cache groups of a plan, in words; empty where it is not known to
    lack anything."""
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    if plan.drafts_of_layers and not may_take(KVCacheGroupSpec, "is_eagle_group"):
        return "No cache group of this vLLM says that a drafter has layers in it"
    if plan.every_state and not adapt.keeps_every_state():
        return "A Mamba layer of this vLLM keeps no state after each block"
    return ""


def _as_planned(plan: ConnectorPlan, found: PlanSearch) -> ConnectorPlan | None:
    """The plan with the drafter's layers in the groups in which a start-up of this vLLM puts them.
    None where kvproof cannot drive them like that, which is recorded as lacking. Raises
    AdapterDrift."""
    if not plan.engine.drafter_is_apart:
        return plan
    try:
        return replace(plan, engine=build.as_planned(plan.engine))
    except UsageError as error:
        why = "A start-up of this vLLM puts the drafter into groups that kvproof does not drive"
        found.lacking[plan] = f"{why} ({str(error).split('. ')[0]})"
        return None


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
        smaller(found.plan, lambda plan: broken(plan) is not None)
    return found


TRIES_MAX = 150
"""The largest number of smaller plans that are tried."""

PLAIN = ("copies", "stops", "clock_ahead", "options", "load_failure", "uncut")
"""The fields of a plan whose defaults are tried."""

PLAIN_REQUEST = ("beside", "computes_all", "images", "asks", "turn", "answer", "max_tokens", "rows")
"""The fields of a request whose defaults are tried."""


def smaller(plan: ConnectorPlan, breaks: Callable[[ConnectorPlan], bool]) -> ConnectorPlan:
    """The smallest plan found for which `breaks` is true, beginning with a plan for which it is."""
    tried = {plan}
    best: ConnectorPlan | None = plan
    while best is not None:
        plan, best = best, None
        for each in _smaller_ones(plan):
            if len(tried) > TRIES_MAX:
                return plan
            if each not in tried:
                tried.add(each)
                if breaks(each):
                    best = each
                    break
    return plan


def _smaller_ones(plan: ConnectorPlan) -> Iterator[ConnectorPlan]:
    """Plans that are smaller in one way: without some of the actions, the longest runs of actions
    first; then with one field at its default, and with shorter prompts."""
    actions = plan.actions
    size = (1 << (len(actions) // 2).bit_length()) // 2  # a power of two, at most half of them
    while size:
        for at in range(0, len(actions), size):
            yield replace(plan, actions=(*actions[:at], *actions[at + size :]))
        size //= 2
    for name in PLAIN:
        yield from _plain(plan, name)
    for at, action in enumerate(actions):
        for other in _plainer(action):
            yield replace(plan, actions=(*actions[:at], other, *actions[at + 1 :]))


def _plainer(action: Any) -> Iterator[Any]:
    if isinstance(action, SubmitRequest):
        for name in PLAIN_REQUEST:
            yield from _plain(action, name)
        if action.tokens > 1:
            yield replace(action, tokens=action.tokens // 2)
            yield replace(action, tokens=action.tokens - 1)
    if isinstance(action, RunSteps):
        yield from _plain(action, "times")


def _plain(part: Any, name: str) -> Iterator[Any]:
    """The part with this field at its default, if it is not already."""
    default = next(each.default for each in fields(part) if each.name == name)
    if getattr(part, name) != default:
        yield replace(part, **{name: default})
