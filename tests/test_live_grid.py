"""Live vLLM beside the model on clusters that nobody chose: green but for the listed findings.

In profile ci these are 100 clusters of 20 episodes each. A failing run is printed as it was found;
`kvproof sample --machine live --config random:SEED` finds a short one.
"""

import pytest
from hypothesis import settings

from kvproof.model.config import Cluster
from kvproof.model.drawn import drawn
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.stateful import check_machine

pytestmark = [pytest.mark.stateful, pytest.mark.live]

CLUSTERS = 100
ONCE_WRONG = (263, 281, 320)
"""Seeds that showed a mistake of kvproof."""
SHARE = 3


@pytest.mark.parametrize("seed", [*range(CLUSTERS), *ONCE_WRONG])
def test_live_vllm_does_only_what_the_model_with_the_listed_faults_does(seed: int) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    faults = deviations(availability.check())
    examples = settings().max_examples // SHARE
    machines: list[Shadowed] = []

    def make(cluster: Cluster) -> Shadowed:
        machines.append(Shadowed(LiveMachine(cluster), faults))
        return machines[-1]

    check_machine(make, drawn(seed), examples=examples, shrink=False)
    assert len(machines) >= examples
    assert sum(len(m.steps) for m in machines) > 0
