"""The form of a check: one decorated function. One that is not right is told in two sentences."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kvproof.invariants import check as form
from kvproof.invariants.check import Check, Tally, broken, broken_by, check
from kvproof.model.because import Judged, because, choice, holds, reason
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Schedule
from kvproof.model.needs import Need
from kvproof.model.presets import CLUSTERS
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step


@dataclass(frozen=True)
class Written:
    """A fact."""

    tokens: int


@dataclass(frozen=True)
class Read:
    """Another fact."""

    tokens: int


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of these tests are not in the registry after them."""
    monkeypatch.setattr(form, "FOUND", dict(form.FOUND))


def declared(name: str = "all is well") -> Check:
    """A check of two kinds of facts."""

    @check(name, origin="an example", severity=Severity.LEAK)
    def tokens_are_few(fact: Written | Read, past: int) -> Iterator[Judged]:
        """Once there were many."""
        if fact.tokens <= past:
            yield holds(fact.tokens)
        else:
            excuses = (choice("it is a little more"),) if fact.tokens == past + 1 else ()
            yield because(
                reason("tokens", "{tokens} tokens", tokens=fact.tokens), excuses=excuses, block=7
            )

    return tokens_are_few


def test_what_holds_and_what_is_excused_is_counted_and_no_finding() -> None:
    tally = Tally()
    facts = [Written(2), Read(3), Written(4), Written(9)]
    told = [f for fact in facts for f in broken_by([declared()], fact, tally, past=3)]
    assert [(f.invariant, f.about.block, f.reasons[0].facts) for f in told] == [
        ("tokens_are_few", 7, {"tokens": 9})
    ]
    assert tally.judged == {"tokens_are_few": 7}
    assert tally.excused == {"tokens_are_few": 1}


def test_each_check_of_a_step_judges_the_things_of_its_type() -> None:
    seen: list[object] = []

    @check("a", severity=Severity.LEAK)
    def of_engines(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
        seen.append((engine.name, cluster.name))
        yield holds()

    @check("b", severity=Severity.LEAK)
    def of_states(state: State) -> Iterator[Judged]:
        seen.append(state)
        yield holds()

    @check("c", severity=Severity.LEAK)
    def of_steps(step: Step) -> Iterator[Judged]:
        seen.append(step)
        yield because(reason("so", "so"))

    living, dead = Engine("P", (), ()), Engine("D", (), (), dead="it raised")  # type: ignore[arg-type]
    state = State((living, dead))
    step = Step(state, Schedule("P"), Effects(), state)
    findings = list(broken(CLUSTERS["full"], step, [of_engines, of_states, of_steps]))
    assert seen == [("P", "full"), state, step]
    assert [finding.invariant for finding in findings] == ["of_steps"]


def test_a_check_that_does_not_say_what_it_needs_looks_at_the_whole_state() -> None:
    @check("a", severity=Severity.LEAK)
    def pool_is_free(engine: Engine) -> Iterator[Judged]:
        yield holds(len(engine.free))

    assert pool_is_free.needs == (Need.STATE,)
    assert declared().needs == ()


def test_two_checks_with_one_name_are_refused() -> None:
    declared()
    with pytest.raises(UsageError, match=r"have a check named tokens_are_few\. Use another name"):

        @check("another", severity=Severity.LEAK)
        def tokens_are_few(fact: Read) -> Iterator[Judged]:
            yield holds(fact.tokens)


def test_a_check_says_what_it_judges() -> None:
    with pytest.raises(UsageError, match=r"test_check\.py, line .* does not say what it .* Use"):

        @check("a", severity=Severity.LEAK)
        def judges_anything(thing) -> Iterator[Judged]:  # type: ignore[no-untyped-def]
            yield holds(len(thing))

    with pytest.raises(UsageError, match=r"asks for weather, which no check gets\. Use cluster"):

        @check("b", severity=Severity.LEAK)
        def asks_for_more(engine: Engine, weather: str) -> Iterator[Judged]:
            yield holds(len(engine.free) * len(weather))
