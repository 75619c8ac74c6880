"""An external store beside one engine: what it keeps and offers, and that the searches use it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.environment import stores
from kvproof.model.errors import UsageError
from kvproof.model.events import Admit, Complete, Compute, ResetPrefixCache, Schedule, Submit, bare
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS

FULL, MAMBA = Group("full", 2), Group("mamba", 2)


def test_attention_alone_is_kept_block_by_block() -> None:
    cfg = EngineConfig("E", (FULL,), store=True)
    assert stores.kept(cfg, "abcde") == ("ab", "abcd")


def test_a_state_is_kept_only_where_a_step_ends() -> None:
    cfg = EngineConfig("E", (FULL, MAMBA), store=True)
    assert stores.kept(cfg, "abcde") == ()
    assert stores.kept(cfg, "abcd") == ("abcd",)


def test_it_survives_a_reset_and_fills_the_blocks_in_the_same_step() -> None:
    machine = ModelMachine(CLUSTERS["store-tight"])
    for event in (
        Submit("E", "r0"),
        *(Schedule("E"), Complete("E")) * 2,
        ResetPrefixCache("E"),
        Submit("E", "r1"),
    ):
        machine.take(event)
    assert machine.state.engine("E").cached == ()
    step = machine.take(Schedule("E"))
    assert bare(step.event) == Schedule("E", (Admit("r1", 0, 4), Compute("r1", 1)))
    assert [(a.predicted, a.taken) for a in step.effects.allocations] == [(5, 5)]
    assert all(read.found == read.expected for read in step.effects.reads)
    assert len(step.effects.reads) > 0


def test_the_model_refuses_a_store_beside_transfers() -> None:
    with pytest.raises(UsageError, match=r"does not model\. Use store false, or role both"):
        ModelMachine(LIVE_CLUSTERS["pd-store"])


@contextmanager
def model(cluster: Cluster) -> Iterator[Machine]:
    yield ModelMachine(cluster)


@contextmanager
def live(cluster: Cluster) -> Iterator[Machine]:
    from kvproof.live.machine import LiveMachine

    with closing(LiveMachine(cluster)) as made:
        yield made


@pytest.mark.parametrize("machine", [model, pytest.param(live, marks=pytest.mark.live)])
@pytest.mark.parametrize(
    ("first", "second", "loaded"), [(0, 0, 2), (0, 1, 0), (1, 0, 0), (1, 1, 2)]
)
def test_a_store_gives_no_tokens_for_embeddings(
    machine: Callable[[Cluster], AbstractContextManager[Machine]],
    first: int,
    second: int,
    loaded: int,
) -> None:
    engine = EngineConfig("E", (FULL,), store=True, num_blocks=9, prefix_caching=False)
    jobs = Job("r0", "abc", embeds=bool(first)), Job("r1", "abc", embeds=bool(second))
    with machine(Cluster("c", (engine,), jobs)) as made:
        admitted = [
            choice.external
            for name in ("r0", "r1")
            for event in (Submit("E", name), Schedule("E"), Complete("E"))
            for choice in getattr(made.take(event).event, "chose", None) or ()
            if isinstance(choice, Admit)
        ]
    assert admitted == [0, loaded]
