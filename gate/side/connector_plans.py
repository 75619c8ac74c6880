"""The kit as one side of a comparison of two vLLMs: what the plans of a workload break."""

import contextlib
import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from kvproof.gate.difference.judged import Break, Judgement, Key, Note
from kvproof.gate.difference.protocol import Accepts, KitConnector
from kvproof.gate.difference.record import Course, Fatal, Record, Recorder, Stands
from kvproof.gate.difference.result import Result, severity
from kvproof.gate.difference.workload import Planned, Play, Plays
from kvproof.gate.side.drawn_plans import with_plans
from kvproof.invariants.engines import engine_survives
from kvproof.live import user_sizes
from kvproof.live.blame import is_mistake, is_ours, is_refusal
from kvproof.live.connectors.accepted import NotAccepted, accepted
from kvproof.live.connectors.engines import Engines
from kvproof.live.connectors.episode import EpisodeResult, Moment, RefusedPlan, play
from kvproof.live.connectors.judging import CONTRACT, broken, mixed_up
from kvproof.live.connectors.shipped import IMAGES, SHIPPED
from kvproof.live.connectors.subject import NoConnector, TestedConnector
from kvproof.live.contract.lookup import last_line
from kvproof.live.death import death_of
from kvproof.live.fakes import replaced
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import used_by
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.connectors import (
    BEHAVIOUR,
    Called,
    Fact,
    ItemEncoded,
    Past,
    PromptReported,
    Unfreed,
    Waits,
)
from kvproof.model.finding import Finding, Signature
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.severity import Severity
from kvproof.model.state import Death

COPY = "copy_of_load_not_reserved"
"""The finding that explains a request that lacks a block for a copy of its state alone, beside
others that have blocks, and the requests behind it."""


def known() -> tuple[KitConnector, ...]:
    """The connectors that vLLM ships. Their modules are imported now, so that no workload has
    to."""
    for each in replaced.REPLACED:
        replaced.found(each.place)
    for shipped in SHIPPED.values():
        with contextlib.suppress(Exception, AdapterDrift):  # then playing says why
            shipped.subject.kind  # noqa: B018 (it imports the class)
    return tuple(KitConnector(name, shipped.home) for name, shipped in SHIPPED.items())


def subject(workload: Play | Plays) -> TestedConnector:
    """The connector of a workload, with its settings."""
    return SHIPPED[workload.connector].subject


def drive(workload: Play | Plays, into: Judgement, note: Note | None) -> None:
    """Judge the plans of a workload. Plans that this vLLM does not take are left out, and have an
    empty record. Raises AdapterDrift where the kit does not fit this vLLM, or all plans are
    refused."""
    chosen, these = subject(workload), _plans(workload)
    refused: list[RefusedPlan] = []
    for plan in these:
        try:
            one = PlayedPlan(workload.connector, chosen, plan, note)
        except RefusedPlan as error:
            refused.append(error)
            into.records.append(Record())
            continue
        into.records.append(one.record)
        into.steps += one.result.steps
        into.course = one.course
        for found in (*one.breaks.values(), *one.excused.values()):
            into.note(found)
    if refused and len(refused) == len(these):
        raise AdapterDrift(refused[0].why, chosen.name) from refused[0]
    into.kinds = tuple(plan.kinds for plan in these)


def shown(chosen: TestedConnector, run: Planned, own: bool = False) -> Result | None:
    """What a plan of a finding, or of a break, shows with a connector or, if `own`, with that of
    the plan. None where the connector has not the classes with which a finding was seen, or cannot
    take the plan. What was seen without a connector may show with each."""
    if not isinstance(run, Play):
        return None
    of_plan = SHIPPED[run.connector].subject if run.connector in SHIPPED else chosen
    if {*of_plan.classes} - {IMAGES.name} <= {*chosen.classes}:
        with contextlib.suppress(Exception, AdapterDrift):
            used = of_plan if own else chosen
            played = PlayedPlan(used.name, used, run.plan)
            return Result(used.name, breaks=(*played.breaks.values(),), course=played.course)
    return None


class PlayedPlan:
    """A plan that was played on an engine with a connector, and what it breaks, by itself
    (`breaks`) or with an excuse (`excused`). `unmade` is the mistake for which the connector cannot
    be made. A leak, or what is less grave, does not end the episode, so that it hides nothing.
    Wrong tokens would be read again and again: what comes after them says nothing new."""

    def __init__(
        self,
        name: str,
        chosen: TestedConnector,
        plan: ConnectorPlan,
        note: Note | None = None,
    ) -> None:
        self.name, self.plan, self.note = name, plan, note
        self.features = used_by(Cluster(name, (plan.engine,)))
        self.stands: dict[int, tuple[Stands, ...]] = {}
        self.died: Death | None = None
        self.died_at = 0
        self.waits = False
        self.breaks: dict[Key, Break] = {}
        self.recorder = Recorder()
        self.excused: dict[Key, Break] = {}
        self.counts: Mapping[str, int] = {}
        self.unmade: Exception | None = None
        try:
            self.result = play(chosen, plan, self._note)
        except Exception as error:
            if not is_mistake(error):
                raise
            self._unmade(error)

    def _unmade(self, error: Exception) -> None:
        """The connector cannot be made with the engine of the plan."""
        self.unmade, self.died = error, death_of(error)
        self.plan = msgspec.structs.replace(self.plan, actions=())
        findings = tuple(broken([Called(self.died, in_connector=True)], Past()))
        for found in (self._break(finding, 0, {}) for finding in findings):
            self.recorder.judged(found.need)
            self.breaks[found.key] = found
        self.result = EpisodeResult(findings, 0, 0, Counter())

    def _note(self, engine: Engines, shown: Moment) -> bool:
        at, facts = shown.at, shown.facts
        if at >= len(self.plan.actions) - 1:
            self.stands[at] = tuple(Stands(*each) for each in engine.standing)
        if self.note is not None:
            event = self._event(at)
            shapes = dict.fromkeys(map(_shape, facts))
            self.note(f"{each}: {event}: {shape}" for shape in shapes for each in self.features)
        behaviour = (fact for fact in facts if isinstance(fact, BEHAVIOUR))
        self.recorder.seen((*behaviour, *engine.shown()))
        self.counts = engine.counts
        for fact in facts:
            if isinstance(fact, ItemEncoded):
                self.recorder.count("encoder items computed", 1)
            if isinstance(fact, PromptReported):
                self.recorder.count("tokens hit", fact.local)
                self.recorder.count("tokens offered by a connector", fact.external)
                self.recorder.count("tokens computed", fact.computed)
        died = (each.death for each in facts if isinstance(each, Called) and each.death)
        if self.died is None and (death := next(died, None)) is not None:
            self.died, self.died_at = death, at
        self.waits = any(isinstance(each, Waits | Unfreed) for each in facts)
        before = dict(self.breaks)
        checks = (CONTRACT[each.invariant] for each in shown.findings)
        fatal = (each for each in checks if each.severity == Severity.CRASH)
        promise = next((each.id for each in fatal if each is not engine_survives), "")
        new = [self._break(finding, at, before, promise) for finding in shown.findings]
        for found in new:
            self.recorder.judged(found.need)
            self.breaks.setdefault(found.key, found)
        for finding in shown.excused:
            found = self._break(finding, at, before)
            self.recorder.judged(found.need)
            self.excused.setdefault(found.key, found)
        return all(severity(found) >= Severity.LEAK for found in new)

    def first(self, severity_max: Severity = Severity.BOOKKEEPING) -> list[Break]:
        """What breaks before anything else that is as grave, the gravest first."""
        found = (each for each in self.breaks.values() if not each.after)
        return sorted((each for each in found if severity(each) <= severity_max), key=severity)

    @property
    def record(self) -> Record:
        """What the run of the plan shows."""
        self.recorder.count("steps", self.result.steps)
        pending = {"transfers pending at the end": self.result.pending}
        for name, number in {**self.counts, **pending}.items():
            self.recorder.at_end(name, number)
        made = self.recorder.made(whole=self.course.ended)
        if self.died is None or not self.died_at:
            return made
        fatal = Fatal(self.died_at, self.died.place, self.died.statement)
        return msgspec.structs.replace(made, fatal=fatal)

    @property
    def course(self) -> Course:
        """How the plan was taken."""
        dead, last = self.died.words if self.died else "", len(self.plan.actions)
        return Course(
            dead=dead,
            ended=not dead and not self.waits and self.result.at > last,
            judged=tuple(name for name in CONTRACT if self.result.times_judged[name]),
            stands=self.stands.get(last - 1, ()),
            left=self.stands.get(last, ()),
        )

    def _event(self, at: int) -> str:
        """The kind of the action of this number, from 1 on."""
        if at > len(self.plan.actions):
            return "Drain"
        return str(self.plan.actions[at - 1].__struct_config__.tag) if at else "Start"

    def _break(
        self, finding: Finding, at: int, before: Mapping[Key, Break], promise: str = ""
    ) -> Break:
        """The break of a finding. It may be a consequence of an earlier one, but not of one that is
        less grave. A death follows the `promise` that the same event broke."""
        grave = CONTRACT[finding.invariant].severity
        after = tuple(key for key in before if CONTRACT[key.signature.check].severity <= grave)
        engine, actions = self.plan.engine, self.plan.actions[:at]
        plan = msgspec.structs.replace(self.plan, actions=actions)
        group = finding.about.group
        where: tuple[str, ...] = (plan.kinds,)
        if group is not None:
            where = (engine.groups[group].kind, plan.kinds)
        if (apart := CONTRACT[finding.invariant].apart) != "groups":
            where = ("any cache groups", *[self.name] * (apart == "connectors"))
        if other := mixed_up(finding):  # this hides no mix-up of tokens
            where = (other, *where)
        if finding.of_kind("goes_round"):  # a tight pool may have this beside any other hang
            where = ("steps without end", *where)
        died = self.died if finding.invariant == engine_survives.id else None
        if died:  # what other engines die of hides nothing here
            where = (*where, "an engine with a connector")
        return Break(
            signature=Signature(finding.invariant, self._event(at), " of ".join(where)),
            by=COPY if finding.of_kind("no_copy") or finding.of_kind("behind") else "",
            death=died.place if died else "",
            finding=finding,
            cluster=Cluster(self.name, (engine,)),
            after=after,
            statement=died.statement if died else "",
            plan=Play("", self.name, plan),
            severity=grave,
            promise=promise if died else "",
            drained=at > len(self.plan.actions),
        )


def _shape(fact: Fact) -> str:
    """A fact without its names and numbers."""
    true = (name for name, value in fact._asdict().items() if value is True or value is None)
    return " ".join((type(fact).__name__, *true))


def accepts(name: str) -> Accepts:
    """The cache groups that a connector of the kit's table accepts. To find it out takes as long as
    ten plans. The reason is there where this vLLM does not have it, or not with these settings."""
    chosen, found = SHIPPED[name].subject, NotAccepted()
    try:
        plans = tuple(accepted(chosen, found, marked=True))
    except AdapterDrift as drift:
        return Accepts(reason=drift.why)
    except NoConnector as error:
        return Accepts(reason=error.why)
    except Exception as error:
        if is_ours(error) or not is_refusal(error):
            raise
        why = f"This vLLM refuses the settings of {chosen.name} ({last_line(error)})"
        return Accepts(reason=why)
    mistakes = (each for each, why in found.unmade.items() if not is_refusal(why))
    return Accepts(plans, tuple(each for each in mistakes if _fails_in_user_sizes(chosen, each)))


def _fails_in_user_sizes(chosen: TestedConnector, plan: ConnectorPlan) -> bool:
    """Whether the engine of a plan cannot be made with the blocks and the pool of a user, either:
    vLLM may assume that blocks have 16 tokens."""
    try:
        play(chosen, msgspec.structs.replace(plan, engine=user_sizes.engine(plan.engine)))
    except (Exception, AdapterDrift):  # a size may also be too large
        return True
    return False


@functools.cache
def _accepts(name: str) -> Accepts:
    """The same, for who drives one vLLM alone. Raises AdapterDrift where there is no such
    connector."""
    found = accepts(name)
    if found.reason:
        raise AdapterDrift(found.reason)
    return found


def _plans(workload: Play | Plays) -> Sequence[ConnectorPlan]:
    """The plans of a workload; drawn here where nobody has drawn them."""
    if isinstance(workload, Play):
        return [workload.plan]
    if workload.plans is None:
        taken = Accepts() if workload.like is not None else _accepts(workload.connector)
        workload = with_plans(workload, taken)
    return workload.plans or ()
