"""Live vLLM beside the model on clusters that nobody chose: green but for the listed findings.

In profile ci these are 100 clusters of 20 episodes each. A failing run is printed as it was found;
`kvproof sample --machine live --config random:SEED` finds a short one.

Runs on each release that the model runs beside; other tests want the one that is tested in full.
"""

import pytest
from hypothesis import settings

from kvproof.model.config import Cluster, Engine, Group
from kvproof.model.drawn import drawn
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.stateful import check_machine

pytestmark = [pytest.mark.stateful, pytest.mark.live]

CLUSTERS = 100
SHARE = 3


def _eagle(size: int) -> tuple[Group, ...]:
    full, window = Group("full", size, eagle=True), Group("window", size, window=4, eagle=True)
    return full, full, window, Group("mamba", size)


def _one(*groups: Group, num_blocks: int, chunk_tokens: int, **options: object) -> Engine:
    return Engine("E", groups, num_blocks, "both", chunk_tokens, **options)  # type: ignore[arg-type]


ONCE_WRONG = [
    Cluster(
        "uncached-drafts",
        (_one(*_eagle(4), num_blocks=40, chunk_tokens=3, prefix_caching=False, drafts=1),),
    ),
    Cluster("drafts", (_one(*_eagle(8), num_blocks=24, chunk_tokens=2, drafts=1),), aborts=True),
    Cluster(
        "limited-sessions",
        (_one(Group("full", 2), num_blocks=9, chunk_tokens=2, max_requests=2),),
        evictions=True,
        sessions=True,
    ),
]
"""Clusters that showed a mistake of kvproof once they had been drawn."""


@pytest.mark.parametrize(
    "cluster", [*map(drawn, range(CLUSTERS)), *ONCE_WRONG], ids=lambda c: c.name
)
def test_live_vllm_does_only_what_the_model_with_the_listed_faults_does(cluster: Cluster) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    faults = deviations(availability.installed())
    examples = settings().max_examples // SHARE
    machines: list[Shadowed] = []

    def make(cluster: Cluster) -> Shadowed:
        machines.append(Shadowed(LiveMachine(cluster), faults))
        return machines[-1]

    check_machine(make, cluster, examples=examples, shrink=False)
    assert len(machines) >= examples
    assert sum(len(m.steps) for m in machines) > 0
