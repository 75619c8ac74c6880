"""What is known of connectors, start-ups and loops: a finding of one of these has plans in its
folder, as a finding of a cluster has a trace. What is no finding of its own, because it is reported
to vLLM by others, wanted or not grave, has plans in `findings/explained/`, and a line in its page.

A break is known if a plan of a finding, driven on the same vLLM and with the same connector, breaks
the same. So a finding is not known where a vLLM has mended it, and what breaks in another way is
new. An exception says what failed: the plan may show it with the connector that it was written for,
because another one of the same classes may not come so far in it.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.workload import Loop, Play, Start
from kvproof.live.known.traces import FOLDER
from kvproof.model.files.reading import read_text

PLANS = "plans.json"

EXPLAINED = FOLDER / "explained"

Planned = Play | Start | Loop


class KnownPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan of a finding, and what it breaks where a vLLM has the finding: the id of the check
    and, for the death of an engine, the exception and the function."""

    check: str
    run: Planned
    death: str = ""


class BreakSign(NamedTuple):
    """What two breaks of one cause have in common: the check and the kinds of its reasons, and for
    a death its place and its statement. For what else breaks, a connector has the kind of cache
    group, a start-up and a loop have the whole feature, and an exception that an engine outlives
    its message. Which other groups and which action a plan has says little of the cause."""

    check: str
    feature: str
    death: str
    statement: str
    reasons: frozenset[str]


def sign_of(found: Break) -> BreakSign:
    """The sign of a break that has a plan."""
    signature, feature = found.signature, found.signature.feature
    if found.death:
        feature = ""
    elif isinstance(found.plan, Play):
        group, of, _ = feature.partition(" of ")
        feature = group if of else ""
    reasons = frozenset(
        f"{each.facts}" if each.kind == "message" and not found.death else each.kind
        for each in found.finding.reasons
    )
    return BreakSign(signature.check, feature, found.death, found.statement, reasons)


class DrivesPlan(Protocol):
    """What a plan breaks on the vLLM of a break, with the connector of the break or, if `own`, with
    that of the plan."""

    def __call__(self, run: Planned, own: bool = False) -> Iterable[Break]: ...


def known_as(found: Break, driven: DrivesPlan) -> str:
    """The name of what explains a break, or an empty text."""
    sign, happened = sign_of(found), causes(found.plan)
    raised = any(each.kind == "message" for each in found.finding.reasons)

    def fits(named: tuple[str, KnownPlan]) -> tuple[bool, int]:
        return named[1].check == sign.check, len(causes(named[1].run))

    for name, plan in sorted(plans(), key=fits, reverse=True):
        if type(plan.run) is not type(found.plan) or not causes(plan.run) <= happened:
            continue
        if sign in signs(plan, driven(plan.run)):
            return name
        alike = raised and (plan.check, plan.death) == (sign.check, sign.death)
        if alike and sign in signs(plan, driven(plan.run, own=True)):
            return name
    return ""


RESET = "Reset"
CAUSES = {
    "Abort": "a client goes away",
    "Fail": "what is behind the connector fails",
    "Forget": "what is behind the connector fails",
    "Pause": "a pause",
    "Restart": "another engine",
}
"""What nothing but an action of a plan for a connector brings about, by its kind."""


def causes(run: Planned | None) -> frozenset[str]:
    """What happens in a plan for a connector that only its actions bring about. The plans of a
    finding are as small as they can be: it explains no plan in which less happens, and the finding
    in whose plan most happens comes first."""
    if not isinstance(run, Play):
        return frozenset()
    actions = [(each["type"], each.get("connector")) for each in run.plan["actions"]]
    found = {CAUSES[kind] for kind, _ in actions if kind in CAUSES}
    resets = any(kind == RESET and connector for kind, connector in actions)
    return frozenset(found | {"a reset of the connector's cache"} if resets else found)


def signs(plan: KnownPlan, breaks: Iterable[Break]) -> set[BreakSign]:
    """The signs of a finding whose plan breaks these, first of all. None where it does not break
    its check as it did: then this vLLM does not have the finding."""
    found = {sign_of(each) for each in breaks if not each.after}
    shown = any((each.check, each.death) == (plan.check, plan.death) for each in found)
    return found if shown else set()


def plans() -> Iterator[tuple[str, KnownPlan]]:
    """The name of each finding, and of each line of the page, that has plans, with each of them."""
    for name, of_one in _all().items():
        for plan in of_one:
            yield name, plan


@cache
def _all() -> dict[str, list[KnownPlan]]:
    of_findings = {path.parent.name: path for path in sorted(FOLDER.glob(f"*/{PLANS}"))}
    explained = {path.stem: path for path in sorted(EXPLAINED.glob("*.json"))}
    return {
        name: msgspec.json.decode(read_text(path, "plans"), type=list[KnownPlan])
        for name, path in (of_findings | explained).items()
    }
