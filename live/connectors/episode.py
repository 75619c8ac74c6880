"""One episode: a plan is played on a real engine, and each fact is judged."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproof.invariants.check import Tally
from kvproof.live import adapt
from kvproof.live.blame import is_ours, is_refusal
from kvproof.live.connectors.engine import DrivenEngine
from kvproof.live.connectors.engines import Engines, replicas
from kvproof.live.connectors.judging import CONTRACT, broken
from kvproof.live.connectors.pair import EnginePair, EnginePeers, PairAtOnce
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.contract.features import KIT
from kvproof.live.contract.lookup import last_line
from kvproof.live.contract_check import check
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.replaced import REPLACED, device, require
from kvproof.live.fakes.store_client import Memory
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.facts.connectors import (
    Called,
    Fact,
    LoadEnded,
    LoadFailed,
    Matched,
    Past,
    ResetAnswered,
    counted,
)
from kvproof.model.finding import Finding
from kvproof.model.plans.connector import (
    AbortRequest,
    Action,
    ConnectorPlan,
    Drain,
    Fail,
    Forget,
    PauseEngine,
    ResetCache,
    Restart,
    ResumeEngine,
    RunSteps,
    Stand,
    SubmitRequest,
)


class Moment(NamedTuple):
    """What the action of this number shows, from 1 on: the facts of it, the violations, and the
    breaks that have excuses."""

    at: int
    facts: list[Fact]
    findings: list[Finding]
    excused: list[Finding]


Note = Callable[[Engines, Moment], bool]
"""Receives the engines after an action, and what this shows. Returns whether the episode goes on
although a check is broken."""


@dataclass(frozen=True)
class EpisodeResult:
    """The result of an episode. `findings` has the findings of the first action that broke a check,
    the most severe first. `at` is the number of that action, from 1 on (one more than the last
    action: the final drain). `steps` counts the worker's steps, `judged` what there was to judge by
    kind, `times_judged` how often each check had something to judge without an excuse, and
    `excused` how often a break of it had one. So many transfers are `pending` at the end."""

    findings: tuple[Finding, ...]
    at: int
    steps: int
    judged: Counter[str]
    times_judged: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    pending: int = 0


class RefusedPlan(UsageError):
    """This vLLM does not take what a plan has beside its cache groups. `why` says it in a sentence,
    and `instead` what to use instead."""

    def __init__(self, why: str, instead: str) -> None:
        self.why = why
        super().__init__(f"{why}. Use {instead}.")


def _refused(plan: ConnectorPlan, error: BaseException) -> RefusedPlan:
    """An engine with the options of a plan, or with a P that is unlike D, is refused, by the
    connector or because the kit cannot drive it."""
    what, instead = ("The options of this plan are", "a plan without options")
    if plan.unlike:
        what, instead = ("P and D of this plan are", "a plan in which they are alike")
    return RefusedPlan(f"{what} refused ({last_line(error)})", instead)


def play(subject: TestedConnector, plan: ConnectorPlan, note: Note | None = None) -> EpisodeResult:
    """Play a plan on a new engine with a new connector. `note` is called after each action. Raises
    RefusedPlan if an engine with the options of the plan is refused, and one without them is not,
    or a prompt has token ids and embeddings, and this vLLM takes no such prompt; and AdapterDrift
    if this vLLM lacks something that the kit needs, and names it."""
    check().require([KIT])
    require_replaced(subject)
    if plan.has_embeddings and not adapt.mixes_embeddings():
        why = "A prompt of this vLLM has token ids or embeddings, and not both"
        raise RefusedPlan(why, "a plan without embeddings")
    past, tally = Past(), Tally()
    with tempfile.TemporaryDirectory(prefix="kvproof-connector-") as folder:
        unmodelled = [(o.name, o.value) for o in plan.config_options if o.of == "connector"]
        settings = subject.settings(Path(folder), (*plan.options, *unmodelled))
        clock = Clock(plan.copies, subject.by_block, plan.buffered)
        memory = Memory(Path(folder))
        judged: Counter[str] = Counter()
        with contextlib.ExitStack() as stack:
            stack.enter_context(device(clock))
            try:
                engine = _made(subject, plan, settings, clock)
            except (Exception, AdapterDrift) as error:
                chosen = plan.options or plan.config_options or plan.unlike
                if not chosen or not _refuses(error):
                    raise
                stack.close()
                plain = replace(plan, actions=(), options=(), config_options=(), unlike="")
                play(subject, plain)
                raise _refused(plan, error) from error
            stack.enter_context(contextlib.closing(engine))
            for at, action in enumerate((*plan.actions, Drain()), 1):
                drift: AdapterDrift | None = None
                try:
                    if at <= len(plan.actions):
                        _act(engine, memory, action)
                    else:
                        if not plan.stops:
                            _finish(engine)
                        engine.end()
                except AdapterDrift as error:
                    drift = error
                facts = [_without(folder, fact) for fact in engine.take_facts()]
                judged.update(counted(facts))
                judged.update(_came_of(facts))
                findings = list(broken(facts, past, tally))
                shown = Moment(at, facts, findings, tally.take_kept())
                goes_on = note is not None and note(engine, shown)
                if drift is not None and not findings:
                    raise drift  # else the kit fails at what the connector answered before
                if engine.dead or (findings and not goes_on):
                    break
            else:
                at, findings = len(plan.actions) + 1, []
            findings.sort(key=lambda f: CONTRACT[f.invariant].severity)
            judged.update(engine.counted)
            judged.update(memory.told())
            times = tally.judged - tally.excused
            pending = sum(each.later for each in past.loads.values()) + len(past.sends)
            found = tuple(findings)
            return EpisodeResult(found, at, engine.steps, judged, times, tally.excused, pending)


def _made(
    subject: TestedConnector, plan: ConnectorPlan, settings: Mapping[str, Any], clock: Clock
) -> Engines:
    """Make the engines that a plan is played on."""
    if subject.pair:
        return (PairAtOnce if subject.at_once else EnginePair)(plan, settings, clock)
    if subject.has_peers:
        return EnginePeers(plan, settings, clock)
    if plan.replicas:
        return replicas(plan, settings, clock)
    # Of several engines, what one has stored another may be offered.
    return Engines(clock, [DrivenEngine(plan, settings, clock, subject.keeps_prompts)])


def _came_of(facts: Sequence[Fact]) -> Iterator[str]:
    """What connectors offered, kept and loaded, and what failed or was refused: a name for each."""
    for fact in facts:
        if isinstance(fact, Matched) and fact.tokens:
            yield "offers"
        elif isinstance(fact, LoadEnded) and fact.failed:
            yield "loads that failed"
        elif isinstance(fact, LoadFailed):
            yield from ["blocks that were not loaded"] * len(fact.blocks)
        elif isinstance(fact, ResetAnswered) and not fact.done:
            yield "resets that were refused"


def _refuses(error: Exception | AdapterDrift) -> bool:
    """Whether an engine is refused, by the connector or because the kit cannot drive it."""
    return isinstance(error, AdapterDrift) or (is_refusal(error) and not is_ours(error))


def _without(folder: str, fact: Fact) -> Fact:
    """The fact without the name of the folder, which differs in each episode."""
    if isinstance(fact, Called | ResetAnswered) and fact.death is not None:
        message = fact.death.message.replace(folder, "{tmp}")
        return fact._replace(death=fact.death._replace(message=message))
    return fact


def _act(engine: Engines, memory: Memory, action: Action) -> None:
    if isinstance(action, SubmitRequest):
        name = f"r{engine.arrived}"
        engine.submit(name, action)
    elif isinstance(action, RunSteps):
        for _ in range(action.times):
            engine.step()
    elif isinstance(action, AbortRequest) and engine.running:
        engine.abort(engine.running[action.which % len(engine.running)])
    elif isinstance(action, ResetCache):
        engine.reset(action.running, action.connector)
    elif isinstance(action, PauseEngine):
        engine.pause(action.new)
    elif isinstance(action, ResumeEngine):
        engine.resume()
    elif isinstance(action, Drain):
        engine.drain()
    elif isinstance(action, Restart):
        _finish(engine)
        engine.restart(action.another)
    elif isinstance(action, Forget):
        memory.forget(action.part)
        engine.loses()
    elif isinstance(action, Fail):
        memory.fail(action)
        engine.clock.files_gone = action.times * (action.call in ("", "get"))
        engine.clock.file = action.value
        engine.loses()
    elif isinstance(action, Stand):
        engine.stand(action.who, action.steps)


def _finish(engine: Engines) -> None:
    """Let an engine finish its work, under no pause."""
    engine.resume()
    engine.drain()


def require_replaced(subject: TestedConnector) -> None:
    """Raise AdapterDrift where this vLLM lacks a name that the kit replaces for this connector."""
    require(REPLACED, lambda module: _concerns(module, subject))


def _concerns(module: str, subject: TestedConnector) -> bool:
    """Whether a module of vLLM is code of this connector, or is not the code of any one connector
    in the table."""
    file = f"{module.removeprefix('vllm.').replace('.', '/')}.py/"
    near = {name: _near(file, each.home) for name, each in SHIPPED.items()}
    nearest = max(near.values())
    owners = [SHIPPED[name].subject for name in near if near[name] == nearest]
    return not nearest or any(_parts(each) <= _parts(subject) for each in owners)


def _near(file: str, home: tuple[str, ...]) -> int:
    """The length of the most specific path of a connector's code that contains this file; 0 for
    none."""
    return max((len(each) for each in home if file.startswith(f"{each}/")), default=0)


def _parts(subject: TestedConnector) -> set[str]:
    """The classes of a connector and of the connectors inside it, and the kinds of its tiers."""
    inside = [each["kv_connector_extra_config"] for each in subject.extra.get("connectors", ())]
    tiers = (
        each for extra in (subject.extra, *inside) for each in extra.get("secondary_tiers", ())
    )
    return {*subject.classes, *(each["type"] for each in tiers)}
