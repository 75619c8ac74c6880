"""The engine around the scheduler as one side of a comparison of two vLLMs: what its start-up and
its loop break."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice, pairwise
from typing import Any

import msgspec

from kvproof.gate.difference.judged import Break, Judgement, Note
from kvproof.gate.difference.record import Course, Record, Recorder
from kvproof.gate.difference.workload import ENGINE, LOOP, START, Engine, Engines
from kvproof.invariants.check import Check, Tally, broken_by
from kvproof.invariants.engines import engine_survives
from kvproof.invariants.registry import checks_of
from kvproof.live.connectors import judging
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.contract.lookup import last_line
from kvproof.live.known.ingredients import without
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.connectors import BEHAVIOUR, Past
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.finding import Finding, Signature
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.random_engines import random_engine
from kvproof.model.presets import CLUSTERS

APART = 1 << 20
"""Two workloads whose seeds differ have no plan in common."""

TRIES = 2_000
"""The number of random plans among which those with the kinds of layers of another are looked for:
there may be none."""

CHECKS: dict[str, Check] = {check.id: check for check in checks_of(Startup, Played)} | CONTRACT
"""The checks by id: of both, and of the store that an engine may have."""

POOLING = {"pools": True}
"""What plans for models that pool have in common."""

EVENTS = {Startup: START, Played: LOOP}
"""The event of what comes of a plan."""


def warm() -> None:
    """Import all of vLLM that is needed, before the first fork. Where this fails, the first plan
    says why."""
    with contextlib.suppress(Exception, AdapterDrift):
        import kvproof.live.core.starts  # noqa: F401


def taken(plan: EnginePlan, undriven: list[AdapterDrift] | None = None) -> list[Startup | Played]:
    """What comes of a plan. Raises AdapterDrift where this vLLM cannot be driven like this; if only
    the loop after a start-up cannot, the start-up is kept if there is a list `undriven`, to which
    the AdapterDrift is added."""
    try:
        from kvproof.live.connectors.stored import stored
        from kvproof.live.core.starts import carried_out

        with stored(plan) as store:
            return carried_out(plan, undriven, store)
    except ImportError as error:
        why = f"The engine core of this vLLM cannot be driven ({last_line(error)})"
        raise AdapterDrift(why, "") from error


def broken(seen: Startup | Played, tally: Tally | None = None) -> Iterator[Finding]:
    """The findings of a start or of a loop, the gravest first: of each check the first. Of what was
    refused or has died, few checks are asked."""
    lives = seen.accepted if isinstance(seen, Startup) else not seen.died
    for check in checks_of(type(seen)):
        if lives or check.of_dead:
            # All are judged, as what comes later may have an excuse.
            yield from [*broken_by([check], seen, tally)][:1]
    if isinstance(seen, Played):
        of_store = judging.broken(seen.store, Past(), tally)
        yield from {each.invariant: each for each in reversed([*of_store])}.values()


def drive(workload: Engine | Engines, into: Judgement, note: Note | None) -> None:
    """Judge the plans of a workload. `note` is called after each plan. Raises AdapterDrift where
    this vLLM cannot be driven like this. A refused engine of given sizes is left out, and has an
    empty record."""
    chosen = isinstance(workload, Engines) and workload.plans is not None
    alike = isinstance(workload, Engines) and workload.like is not None
    plans = [*_plans(workload)]
    died: list[str] = []
    undriven: list[AdapterDrift] = []
    refused: list[AdapterDrift] = []
    for plan in plans:
        seen, drifts = list[Startup | Played](), list[AdapterDrift]()
        try:
            seen = taken(plan, drifts)
        except AdapterDrift as drift:
            if not (plan.is_given or plan.config_options):
                raise
            refused.append(drift)
            drifts = [drift]
        undriven += drifts
        into.unconnected += plan.connected and any(not one.plan.connected for one in seen)
        tallies = [Tally() for _ in seen]
        found = [
            _break(plan, one, each)
            for one, tally in zip(seen, tallies, strict=True)
            for each in _judged(one, tally)
        ]
        into.records.append(_record(seen, found, whole=not drifts))
        into.steps += sum(len(one.steps) if isinstance(one, Played) else 1 for one in seen)
        into.course = _course(seen, tallies)
        if note is not None:
            note(_abstract(plan, seen))
        of_any_memory = seen if plan.is_given else seen[:1]
        died += [each.died.words for each in of_any_memory if each.died][:1]
        for each in found:
            into.note(each)
    if refused and len(refused) == len(plans) and not chosen:
        raise refused[0]
    if len(plans) == len(died) + len(refused) > 1 and not (alike or chosen):
        # What starts nothing is no vLLM that a user has.
        raise AdapterDrift(f"No engine of this vLLM starts ({died[0]})", "EngineCore")
    into.without_loops = undriven[0].why if undriven else ""


def _judged(one: Startup | Played, tally: Tally) -> Iterator[Finding]:
    """The violations of a start or of a loop, and the breaks that have excuses."""
    yield from broken(one, tally)
    yield from tally.take_kept()


def _record(seen: Iterable[Startup | Played], found: Iterable[Break], *, whole: bool) -> Record:
    """What the starts of a plan, or its loop, show, with their breaks. They are not the `whole` run
    if its loop could not be driven. A loop that ran without end, or was cut, shows no more."""
    recorder, goes_on = Recorder(), False
    for each in seen:
        died = each.died.place if each.died else ""
        over = isinstance(each, Played) and (each.busy or each.cut)
        goes_on = not (died or over)
        recorder.marked(each.marks)
        if isinstance(each, Startup) and each.run is not None:
            recorder.marked(each.run.marks)
        if isinstance(each, Played):
            each = each._replace(store=tuple(f for f in each.store if isinstance(f, BEHAVIOUR)))
        recorder.seen((*each._replace(died=None)[1:], died))
        for name, number in each.counts:
            recorder.count(name, number)
    for one in found:
        recorder.judged(one.need)
    return recorder.made(whole=whole and goes_on)


def _plans(workload: Engine | Engines) -> Iterator[EnginePlan]:
    """The plans of a workload."""
    if isinstance(workload, Engine):
        return iter([workload.plan])
    if workload.plans is not None:
        return iter(workload.plans)
    return islice(_random(workload), workload.episodes)


def _random(workload: Engines) -> Iterator[EnginePlan]:
    """The random plans of a workload."""
    seeds, like = count(workload.seed * APART), workload.like
    options = workload.config_options if like is None else like.config_options
    plans = map(random_engine, seeds) if like is None else _alike(like, seeds)
    if workload.about:
        plans = (random_engine(seed, _common(workload.about, seed), store="") for seed in seeds)
    return (msgspec.structs.replace(plan, config_options=options) for plan in plans)


def _common(about: str, seed: int) -> Mapping[str, Any]:
    """What engines that are `about` a kind of models have in common."""
    if about == "pools":
        return POOLING
    return {"drafts": 1 + seed % 3, "stages": 1, "messages": True, "pools": False}


def _alike(like: EnginePlan, seeds: Iterator[int]) -> Iterator[EnginePlan]:
    """The plans of these seeds that are for engines like that of a plan (`Engines`)."""
    common = {"given": like.is_given, "messages": bool(like.actions)}
    alike = "connected", "drafts", "drafter", "misses", "stages", "requests", "by_priority"
    common |= {name: getattr(like, name) for name in alike}
    common |= POOLING if like.pools else {}
    plans = (random_engine(seed, common, like.store) for seed in islice(seeds, TRIES))
    same = ("kinds", "connected", "store", "pools")
    return (p for p in plans if all(getattr(p, name) == getattr(like, name) for name in same))


def single(workload: Engines, number: int, name: str) -> Engine | None:
    """The plan of a workload with this number, as a workload of this name; None if there are fewer
    plans."""
    plan = next(islice(_plans(workload), number, None), None)
    return None if plan is None else Engine(name, plan)


def _course(seen: list[Startup | Played], tallies: list[Tally]) -> Course:
    """How a plan was taken, and which checks had something to judge, by the tally of each start or
    loop. Where the first start is refused no check of starts had, and where the loop never waits
    none of loops."""
    dead = next((each.died.words for each in seen if each.died), "")
    refused = any(isinstance(each, Startup) and each.refused for each in seen[:1])
    judged: dict[str, None] = {}
    for each, tally in zip(seen, tallies, strict=True):
        if each.waits if isinstance(each, Played) else not refused:
            judged |= dict.fromkeys(name for name, times in tally.judged.items() if times)
    return Course(dead=dead, ended=not dead, judged=tuple(judged))


def _abstract(plan: EnginePlan, seen: list[Startup | Played]) -> Iterator[str]:
    """The abstract steps of a plan: its layers, unless its sizes are given, and its actions in
    pairs, each with how it ended."""
    layers = () if plan.is_given else (START, *(each.kind for each in plan.layers))
    actions = (LOOP, *(type(each).__name__ for each in plan.actions))
    end = next((word for word in ("died", "refused") if any(getattr(e, word, 0) for e in seen)), "")
    for names in (layers, actions):
        yield from (f"{one}, {other}: {end}" for one, other in pairwise(names))


def _feature(seen: Startup | Played, finding: Finding) -> str:
    """What is different between breaks of one check: what its reasons say, and for a start-up the
    kinds of layers, since one check is broken for several causes; between hangs: a vLLM that
    forgets the null block lacks one block, and may have other mistakes. A loop has no kinds, as few
    starts of some kinds go on to a loop: base would not be asked often enough."""
    parts = [str(each.facts["feature"]) for each in finding.reasons if "feature" in each.facts]
    if isinstance(seen, Startup):
        parts += seen.plan.kinds
    if CHECKS[finding.invariant].judged != (type(seen),):
        # What other engines break of such a check hides nothing here.
        parts.append(f"a {EVENTS[type(seen)].lower()}")
    if isinstance(seen, Startup) and finding.invariant == "admitted_length_is_served":
        parts.append("lacks a block" if seen.lacks <= 1 else "lacks blocks")
    if isinstance(seen, Played) and seen.plan.pools and finding.invariant == engine_survives.id:
        # findings/engine_abort_ends_pooling_front hides no vector that is lost.
        ends = without("aborts_by_the_engine", seen.plan) is not None
        parts.append("the engine may end requests" if ends else "clients alone end requests")
    return ", ".join(parts)


def _break(plan: EnginePlan, seen: Startup | Played, finding: Finding) -> Break:
    died = seen.died if finding.invariant == engine_survives.id else None
    return Break(
        signature=Signature(finding.invariant, EVENTS[type(seen)], _feature(seen, finding)),
        by="",
        death=died.place if died else "",
        finding=finding,
        cluster=msgspec.structs.replace(CLUSTERS["full"], name=ENGINE, jobs=()),
        statement=died.statement if died else "",
        plan=Engine("", plan),
        severity=CHECKS[finding.invariant].severity,
    )
