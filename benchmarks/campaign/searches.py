"""The searches that are compared. Each goes on until the process ends (see `child.py`).

- `fresh`: a random episode of each cluster, as `kvproof sample` makes them
- `target`: Hypothesis, with `hypothesis.target` on the number of behaviours of an episode
- `atheris`: inputs of Hypothesis that are changed where they reach a branch of vLLM
- `corpus`: a campaign that begins with nothing
- `given`: a campaign that begins with the corpus of one on vLLM as released, of another seed

All take their clusters from the same plan. Atheris is no dependency of kvproof: `pip install
atheris`. It follows modules that were imported after `follow_branches`, and makes them slower.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import hypothesis
from hypothesis.errors import Flaky
from hypothesis.stateful import get_state_machine_test, run_state_machine_as_test

from kvproof.campaign.behaviours import behaviours
from kvproof.campaign.carry_out import CHOICES, Make, carry_out
from kvproof.campaign.plan import FRESH_STEPS, Plan, round_of
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import CorpusEntry, WorkUnit
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.episode import CacheMachine, Target

FOLLOWED = ["vllm.v1.core", "vllm.distributed.kv_transfer"]
"""The modules of vLLM whose branches Atheris follows."""

TARGET_EPISODES = 20
"""Hypothesis begins to climb after ten episodes."""

INPUT_BYTES_MAX = 8_192
"""The longest input of Atheris: what one test of Hypothesis may draw."""

FIRST_INPUTS = 64
"""Random inputs with which Atheris begins."""

CLUSTERS_OF_BYTES = 1 << 10
"""The clusters that the first two bytes of an input choose among."""

Search = Callable[[Make, int, Sequence[CorpusEntry]], None]


def fresh(make: Make, seed: int, _given: Sequence[CorpusEntry]) -> None:
    """The fresh units of a campaign."""
    plan = Plan(seed, True)
    for number in count():
        carry_out(WorkUnit(number, "fresh", plan.cluster(number), seed + number, FRESH_STEPS), make)


def campaign(make: Make, seed: int, given: Sequence[CorpusEntry]) -> None:
    """A campaign with one worker."""
    plan, progress = Plan(seed, True, given), Progress()
    for number in count():
        unit = plan.unit(number, progress)
        result = carry_out(unit, make)
        if result.error:
            raise RuntimeError(result.error)
        progress.merge(unit, result)
        if progress.units == round_of(number)[1]:
            progress.end_round()


def corpus(make: Make, seed: int, _given: Sequence[CorpusEntry]) -> None:
    """A campaign that begins with nothing."""
    campaign(make, seed, ())


class Climbing(CacheMachine):
    """An episode that reports how much it shows."""

    def teardown(self) -> None:
        """End the episode."""
        super().teardown()
        shown = set(behaviours(self.run.machine.cluster, self.run.steps))
        hypothesis.target(float(len(shown)), label="behaviours")


def _settings(*phases: hypothesis.Phase) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=TARGET_EPISODES,
        stateful_step_count=CHOICES,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )


def targeted(make: Make, seed: int, _given: Sequence[CorpusEntry]) -> None:
    """Hypothesis with targets, some episodes of one cluster after the other."""
    plan = Plan(seed, True)
    settings = _settings(hypothesis.Phase.generate, hypothesis.Phase.target)
    for number in count():
        target = Target(plan.cluster(number), make)

        @hypothesis.seed(seed * 100_000 + number)
        def episode(target: Target = target) -> CacheMachine:
            return Climbing(target)

        with suppress(AdapterDrift, Flaky):
            run_state_machine_as_test(episode, settings=settings)  # type: ignore[arg-type]


def follow_branches() -> None:
    """Let Atheris see the branches of vLLM. Call it before vLLM is imported."""
    import atheris

    with atheris.instrument_imports(include=FOLLOWED):
        import vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector
        import vllm.v1.core.sched.async_scheduler
        import vllm.v1.core.sched.scheduler  # noqa: F401


def atheris(make: Make, seed: int, _given: Sequence[CorpusEntry]) -> None:
    """Atheris, led by the branches of vLLM."""
    import atheris as fuzzer

    plan = Plan(seed, True)

    @functools.cache
    def episode(number: int) -> Callable[[bytes], bytes | None]:
        return _fuzzed(plan.cluster(number), make)

    def one(data: bytes) -> None:
        number = int.from_bytes(data[:2], "big") % CLUSTERS_OF_BYTES
        with suppress(AdapterDrift, Flaky, Violated):
            episode(number)(data[2:])

    random = Random(seed)
    with TemporaryDirectory() as folder:
        for number in range(FIRST_INPUTS):
            Path(folder, str(number)).write_bytes(random.randbytes(INPUT_BYTES_MAX // 4))
        options = [f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}", "-rss_limit_mb=0"]
        fuzzer.Setup(["atheris", *options, folder], one)
        fuzzer.Fuzz()


def _fuzzed(cluster: Cluster, make: Make) -> Callable[[bytes], bytes | None]:
    """An episode that bytes choose."""
    target = Target(cluster, make)
    test = get_state_machine_test(
        lambda: CacheMachine(target),  # type: ignore[arg-type]
        settings=_settings(hypothesis.Phase.generate),
    )
    fuzz: Callable[[bytes], bytes | None] = test.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    return fuzz


SEARCHES: dict[str, Search] = {
    "fresh": fresh,
    "target": targeted,
    "atheris": atheris,
    "corpus": corpus,
    "given": campaign,
}
