"""The cache groups with which a connector can be made."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kvproof.live import adapt, build
from kvproof.live.blame import is_ours, is_refusal
from kvproof.live.connectors.drawn import BUFFERED, HIDDEN, NARROWER, SPREAD, unequal
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.layouts import layouts
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.contract.lookup import last_line, may_take
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.plans.connector import ConnectorPlan


@dataclass
class NotAccepted:
    """The plans without requests that are left out. `unmade` has those with whose cache groups the
    connector could not be made, and the exception; `lacking` has those whose groups this vLLM
    cannot have, and why."""

    unmade: dict[ConnectorPlan, Exception] = field(default_factory=dict)
    lacking: dict[ConnectorPlan, str] = field(default_factory=dict)

    @property
    def refused(self) -> dict[str, str]:
        """`unmade` in words."""
        return {each.words: last_line(why) for each, why in self.unmade.items()}


def accepted(
    subject: TestedConnector,
    found: NotAccepted,
    kinds: Sequence[ConnectorPlan] = (),
    *,
    marked: bool = False,
) -> list[ConnectorPlan]:
    """The plans without requests with whose cache groups the connector can be made, of these
    `kinds` or, without them, of all `layouts`. The others are recorded as refused, by the connector
    or, in older releases, by the config of the engine, or as lacking in this vLLM. If no groups are
    left, one of the exceptions is raised again: a refusal on purpose, if there is one.

    A drafter has its layers in the groups in which a start-up with an EAGLE head puts them. With
    `marked`, there are also groups of which one alone is marked as the drafter's: these come from a
    start-up with an MTP drafter (`_annotate_eagle_groups`)."""
    layers: list[ConnectorPlan] = []
    raised: list[BaseException] = []
    pairs = unequal(subject.unequal), NARROWER * subject.narrow, BUFFERED * subject.buffered
    spread = [each for several in (SPREAD * subject.ranks, *pairs) for each in several]
    if subject.hidden and not subject.supports_groups:
        raise AdapterDrift("This vLLM gives hidden states no cache group of their own")
    several, pair = subject.supports_groups, subject.pair or subject.has_peers
    kinds = kinds or (HIDDEN if subject.hidden else layouts(several, pair))
    wanted = [(each, True) for each in (*kinds, *spread)]
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


def _as_planned(plan: ConnectorPlan, found: NotAccepted) -> ConnectorPlan | None:
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
