"""Random episodes: each has choices of its own, and none is given up."""

import pytest

from kvproof.model.errors import UsageError
from kvproof.model.events import Abort, Event
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run
from kvproof.strategies.sampling import random_episodes
from kvproof.strategies.sampling.episode import Target
from kvproof.strategies.sampling.random_episodes import RandomEpisodes

EPISODES = 30


def runs(name: str, seed: int) -> list[tuple[Event, ...]]:
    """The events of some episodes."""
    ended: list[Run] = []
    episodes = RandomEpisodes(Target(CLUSTERS[name], ModelMachine, ended=ended.append), 40, seed)
    for _ in range(EPISODES):
        episodes.run()
    return [tuple(step.event for step in run.steps) for run in ended]


@pytest.mark.parametrize("name", ["full", "pd", "sessions", "async"])
def test_every_episode_goes_to_its_end_and_few_are_alike(name: str) -> None:
    taken = runs(name, 0)
    assert len(taken) == EPISODES
    assert len(set(taken)) > EPISODES // 2


def test_an_episode_that_is_given_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_episodes, "BYTES", 20)
    with pytest.raises(UsageError, match=r"An episode of 40 choices .* Use fewer\.$"):
        runs("pd", 0)


def test_the_same_seed_gives_the_same_episodes() -> None:
    assert runs("pd", 1) == runs("pd", 1) != runs("pd", 2)


def test_an_episode_leaves_some_kinds_of_events_out() -> None:
    """Some episodes abort, and some do not, though each could."""
    with_abort = [any(isinstance(e, Abort) for e in events) for events in runs("async", 0)]
    assert 0 < sum(with_abort) < EPISODES
