"""The sanitizer judges what a store loads, by its bytes, in episodes of the kit that judge nothing
themselves."""

from typing import Any

import pytest

from kvproof.gate.connectors.search import RuleBroken, search
from kvproof.invariants.of_bytes import LOADED
from kvproof.live.connectors import episode
from kvproof.live.connectors.engine import DrivenEngine
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.finding import Finding
from kvproof.watch.bytes.observer import ByteObserver
from kvproof.watch.bytes.sums import Layers
from kvproof.watch.judge import Judge
from tests.connectors.mistakes import LoadsIntoTheNextBlock
from tests.connectors.played import explained
from tests.connectors.store import LaterStore

EPISODES = 40


class Watched:
    """What the sanitizer found on all engines that were built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judges: list[Judge] = []
        self.of_tokens: list[Judge] = []
        self.found: list[Finding] = []
        built = DrivenEngine.__init__

        def init(engine: DrivenEngine, *args: Any, **named: Any) -> None:
            built(engine, *args, **named)
            if not engine.cfg.prefix_caching:
                return  # blocks have no keys, so each load is trusted
            judge = Judge(lambda finding, _: self.found.append(finding))
            self.judges.append(judge)
            self.of_tokens += [judge] * (not engine.plan.has_embeddings)
            ByteObserver(engine.scheduler, judge)

        monkeypatch.setattr(DrivenEngine, "__init__", init)
        monkeypatch.setattr(episode, "broken", lambda *_: ())
        monkeypatch.setattr(Layers, "backends", lambda _: set())  # the kit's layers have none

    @property
    def wrong(self) -> list[Finding]:
        """The loads of wrong bytes."""
        return [finding for finding in self.found if finding.invariant == LOADED]

    @property
    def judged(self) -> int:
        """How many blocks were compared."""
        return sum(judge.times_judged[LOADED] for judge in self.judges)

    @property
    def trusted(self) -> int:
        """How many loads are trusted where prompts are tokens. The keys of a prompt tell that it
        has embeddings, so what the engine computed for it may have another key alone."""
        return sum(judge.trusted.total() for judge in self.of_tokens)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.mark.parametrize("episodes", [15, pytest.param(EPISODES, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("store", ["Store", "LaterStore"])
def test_the_loads_of_a_right_store_are_judged(store: str, episodes: int, watched: Watched) -> None:
    subject = TestedConnector(f"tests.connectors.store:{store}")
    search(subject, episodes, 1, known=explained(subject))
    assert watched.wrong == []
    assert [
        why for judge in watched.judges for why in (*judge.why_off, judge.no_bytes) if why
    ] == []
    assert watched.judged > episodes
    # A load beside the steps that an abort or a reset cuts off stays trusted.
    assert watched.trusted <= (watched.judged // 10 if store == "LaterStore" else 0)


class LaterInNextBlock(LoadsIntoTheNextBlock, LaterStore):
    """A load beside the steps, whose blocks are wrong."""


@pytest.mark.parametrize(
    "mistake",
    [
        "tests.connectors.mistakes:OneLayerIsNotLoaded",
        "tests.connectors.mistakes:LoadsIntoTheNextBlock",
        f"{__name__}:LaterInNextBlock",
    ],
)
def test_a_load_of_wrong_bytes_is_found(mistake: str, watched: Watched) -> None:
    subject = TestedConnector(mistake)

    def look(*_: int) -> None:
        if watched.wrong:
            raise RuleBroken

    search(subject, EPISODES, 1, shrinks=False, progress=look, known=explained(subject))
    assert watched.wrong
    assert "has loaded it" in watched.wrong[0].sentence
