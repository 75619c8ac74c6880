"""The form of a check: one decorated function. One that is not right is told in two sentences."""

from collections.abc import Iterator

import pytest

from kvproof.invariants import check as form
from kvproof.invariants.check import broken, check
from kvproof.model.because import Judged, because, holds, reason
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Schedule
from kvproof.model.needs import Need
from kvproof.model.presets import CLUSTERS
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of these tests are not in the registry after them."""
    monkeypatch.setattr(form, "FOUND", dict(form.FOUND))


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


def test_two_checks_with_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"have a check named pool_adds_up\. Use another name"):

        @check("another", severity=Severity.LEAK)
        def pool_adds_up(engine: Engine) -> Iterator[Judged]:
            yield holds(len(engine.free))


def test_a_check_says_what_it_judges() -> None:
    with pytest.raises(UsageError, match=r"test_check\.py, line .* does not say what it .* Use"):

        @check("a", severity=Severity.LEAK)
        def judges_anything(thing) -> Iterator[Judged]:  # type: ignore[no-untyped-def]
            yield holds(len(thing))

    with pytest.raises(UsageError, match=r"asks for weather, which no check gets\. Use cluster"):

        @check("b", severity=Severity.LEAK)
        def asks_for_more(engine: Engine, weather: str) -> Iterator[Judged]:
            yield holds(len(engine.free) * len(weather))
