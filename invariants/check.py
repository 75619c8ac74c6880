"""A check: a sentence that must be true, and the function that judges it.

    @check(
        "the reference count of a block equals the number of table entries that name it",
        origin="vllm#44409",
        severity=Severity.WRONG_TOKENS,
    )
    def references_are_exact(engine: Engine) -> Iterator[Judged]:
        \"\"\"What went wrong once, and what a user saw of it.\"\"\"

The name of the function is the id of the check, and its docstring the scenario that makes the check
necessary. The type of the first parameter says what is judged, and so where the check is asked. A
function that names further parameters (`GIVEN`) gets them, as a test of pytest gets its fixtures.

It yields `holds()` for what is right, and `because(...)` for what is not, or of each thing
`holds_if(right) or because(...)`. A check that yields nothing had nothing to judge.
`invariants.registry` finds all checks in this folder.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from kvproof.invariants.changes import Scheduled, scheduled
from kvproof.model.because import NOTHING, About, Judged, Reasons
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.finding import Finding
from kvproof.model.needs import Need, Needs
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Step

Function: TypeAlias = Callable[..., Iterable[Judged]]

GIVEN = ("cluster", "past")
"""The further parameters that a check may name: the `Cluster` of the machine, and the `Past` of a
fact."""


class Ending(NamedTuple):
    """The end of a run, or a state of a graph from which nothing leads on: `why` says why requests
    do not end, and is empty where every request has ended. The strategies find the endings."""

    why: Reasons = ()
    about: About = NOTHING


@dataclass(frozen=True, eq=False)
class Check:
    """One check.

    `name` is the sentence that must be true. `function` judges one thing of the types `judged`, and
    gets what else it names. `story` is the scenario. `part` is the part of vLLM that is
    responsible, of a guard alone: a guard says which step is allowed. `needs` says what the check
    looks at: a machine that does not show this is not asked.

    `apart` says how far two breaks by connectors are one defect: only with the same cache `groups`,
    only by the same connector (`connectors`), or always (empty). A check is asked of a dead engine
    or a refused start only if `of_dead`. A break of a check that is `of_two` is a finding only
    beside another vLLM that keeps the check. A check that is `ideal` states what no engine fully
    keeps: each of its breaks has excuses, so that only a pair of base and head is judged by it, and
    no fault breaks it.
    """

    id: str
    name: str
    origin: str
    severity: Severity
    function: Function
    judged: tuple[type, ...]
    story: str = ""
    given: tuple[str, ...] = ()
    part: str = ""
    needs: Needs = ()
    apart: Literal["groups", "connectors", ""] = "groups"
    of_dead: bool = False
    of_two: bool = False
    ideal: bool = False

    @property
    def kind(self) -> str:
        """`guard`, `eventually` for what is asked of whole runs and graphs of states, otherwise
        `always`."""
        if self.part:
            return "guard"
        return "eventually" if Ending in self.judged else "always"

    def asking(self, **known: Any) -> Callable[[Any], Iterable[Judged]]:
        """The check as a function of the judged thing alone."""
        named = {name: known[name] for name in self.given}
        return functools.partial(self.function, **named) if named else self.function

    def of_step(self, cluster: Cluster, step: Step) -> Iterable[Judged]:
        """Judge all that a step shows of what this check is about. A dead engine stopped inside a
        step, so its blocks may be assigned and not yet written: it is judged as a step alone, and
        `engine_survives` reports its death."""
        named = {"cluster": cluster} if "cluster" in self.given else {}
        if Step in self.judged:
            return self.function(step, **named)
        if State in self.judged:
            return self.function(step.after, **named)
        engines = step.after.engines if Engine in self.judged else ()
        return chain.from_iterable(
            self.function(engine, **named) for engine in engines if not engine.dead
        )


@dataclass
class Tally:
    """How often each check has judged something, and how often a break of it was excused. `kept`
    has the excused breaks themselves, until somebody takes them."""

    judged: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    kept: list[Finding] = field(default_factory=list)

    def add(self, check: Check, judged: Judged) -> None:
        """Count one answer of a check."""
        self.judged[check.id] += judged.times
        if judged.excuses:
            self.excused[check.id] += 1
            self.kept.append(Finding(check.id, judged.reasons, judged.about, judged.excuses))

    def take_kept(self) -> list[Finding]:
        """The excused breaks since the last time."""
        kept, self.kept = self.kept, []
        return kept


def findings(
    check: Check, answers: Iterable[Judged], tally: Tally | None = None
) -> Iterator[Finding]:
    """The violations among the answers of a check. An exception of it gets a note with its id."""
    try:
        for judged in answers:
            if tally is not None:
                tally.add(check, judged)
            if judged.reasons and not judged.excuses:
                yield Finding(check.id, judged.reasons, judged.about)
    except Exception as error:
        error.add_note(f"in the check {check.id}")
        raise


def broken(
    cluster: Cluster, step: Step, checks: Iterable[Check], tally: Tally | None = None
) -> Iterator[Finding]:
    """The findings after one step."""
    for check in checks:
        yield from findings(check, check.of_step(cluster, step), tally)


def broken_by(
    checks: Iterable[Check], thing: Any, tally: Tally | None = None, **known: Any
) -> Iterator[Finding]:
    """The findings of checks on anything but a step: a fact, a played loop, a start-up. `known` has
    the other arguments that checks may name."""
    for check in checks:
        yield from findings(check, check.asking(**known)(thing), tally)


class Asked:
    """The checks of one cluster that a search asks very often of one type of things. `judged` is
    how often each had something to judge, by id."""

    def __init__(self, checks: Iterable[Check], kind: type, cluster: Cluster) -> None:
        asked = (check for check in checks if kind in check.judged)
        self._asked = [(check, check.asking(cluster=cluster)) for check in asked]
        self.judged: Counter[str] = Counter()

    def violated(self, thing: Any) -> bool:
        """Whether one of the checks does not hold for a thing. What ends with an exception is not
        counted, because the thing is then asked about again."""
        times: dict[str, int] = {}
        for check, ask in self._asked:
            try:
                for judged in ask(thing):
                    if judged.times:
                        times[check.id] = times.get(check.id, 0) + judged.times
                    if judged.reasons and not judged.excuses:
                        return True
            except Exception as error:
                error.add_note(f"in the check {check.id}")
                raise
        self.judged.update(times)
        return False


FOUND: dict[str, Check] = {}
"""All checks that were imported, by id."""


def check(
    name: str,
    /,
    *,
    severity: Severity,
    origin: str = "",
    part: str = "",
    needs: Needs | None = None,
    apart: Literal["groups", "connectors", ""] = "groups",
    of_dead: bool = False,
    of_two: bool = False,
    ideal: bool = False,
) -> Callable[[Function], Check]:
    """Declare a check: the sentence that must be true, and the fields of `Check`. A guard has a
    `part` of vLLM in place of an `origin`. What is judged of a step needs its whole state, unless
    `needs` says less."""

    def declare(function: Function) -> Check:
        judged, given = _parameters(function)
        if judged == (Scheduled,):
            judged, function = (Step,), _of_scheduler(function)
        of_steps = any(each in (Engine, State, Step) for each in judged)
        whole = (Need.STATE,) if of_steps else ()
        declared = Check(
            id=function.__name__,
            name=name,
            origin=origin or f"the spec, {part}",
            severity=severity,
            function=function,
            judged=judged,
            story=inspect.getdoc(function) or "",
            given=given,
            part=part,
            needs=whole if needs is None else needs,
            apart=apart,
            of_dead=of_dead,
            of_two=of_two,
            ideal=ideal,
        )
        known = FOUND.get(declared.id)
        if known is not None and _place(known.function) != _place(function):
            raise UsageError(
                f"{_place(function)}, and {_place(known.function)}, have a check named "
                f"{declared.id}. Use another name for one of them."
            )
        FOUND[declared.id] = declared
        return declared

    return declare


def _of_scheduler(function: Function) -> Function:
    """A function that judges steps, and asks `function` of those of a scheduler."""

    @functools.wraps(function)
    def of_step(step: Step, **named: Any) -> Iterable[Judged]:
        made = scheduled(step)
        return function(made, **named) if made is not None else ()

    return of_step


def _place(function: Function) -> str:
    """The file and the line of a function."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"


def _parameters(function: Function) -> tuple[tuple[type, ...], tuple[str, ...]]:
    """The types of the things that a function judges, and the names of its other parameters."""
    where = f"The check {function.__name__} ({_place(function)})"
    names = tuple(inspect.signature(function).parameters)
    try:
        types = get_type_hints(function)
    except NameError as error:
        raise UsageError(
            f"{where} has a parameter of an unknown type ({error}). Use a type that the module "
            "imports."
        ) from error
    if not names or names[0] not in types:
        raise UsageError(
            f"{where} does not say what it judges. Use a first parameter with a type: Engine, "
            "State, Step, Scheduled, or a fact."
        )
    for name in names[1:]:
        if name not in GIVEN:
            raise UsageError(
                f"{where} asks for {name}, which no check gets. Use {' or '.join(GIVEN)}."
            )
    judged = types[names[0]]
    union = get_origin(judged) in (Union, UnionType)
    return get_args(judged) if union else (judged,), names[1:]
