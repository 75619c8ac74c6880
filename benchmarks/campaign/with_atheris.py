"""The searches of `planted.py` by Atheris: it changes the bytes that Hypothesis draws from, led by
the branches of the scheduler and the block pool of vLLM.

    python benchmarks/campaign/with_atheris.py --given released --seeds 3 --steps 3000 --out a.jsonl

The first byte of an input chooses one of the clusters that `fresh` begins with, the others are the
choices of one episode (`fuzz_one_input`). Needs the package atheris. Each search is a process of
its own, because Atheris ends the process.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import atheris
import hypothesis
import pytest
from hypothesis.stateful import get_state_machine_test
from planted import MISTAKES, Killed, Steps

from kvproof.campaign.carry_out import CHOICES, Make
from kvproof.campaign.folder import CampaignFolder
from kvproof.campaign.plan import Plan
from kvproof.cli.machines import maker
from kvproof.strategies.sampling.episode import CacheMachine, Target
from tests.mistakes import Mistake

INSTRUMENTED = ("vllm.v1.core.", "vllm.distributed.kv_transfer.kv_connector.v1.nixl.")
"""Modules whose branches lead the search. `instrument_imports` would take all of vLLM."""

CLUSTERS = 64

BYTES_MAX = 2_000
"""Of one input. An episode draws some hundred."""


class Episode(CacheMachine):
    """An episode of the cluster that the input has chosen."""

    target_of_input: Target

    def __init__(self) -> None:
        super().__init__(self.target_of_input)


def fuzz(
    make: Make,
    mistake: Mistake,
    seed: int,
    budget: int,
    report: Callable[..., None],
    known: frozenset[str],
) -> None:
    """Search until the mistake is found or the budget ends. Reports and ends the process."""
    patch = pytest.MonkeyPatch()
    mistake.patch(patch)
    steps = Steps(patch, known)
    plan = Plan(seed, True)
    targets = [Target(plan.cluster(number), make) for number in range(CLUSTERS)]
    settings = hypothesis.settings(
        stateful_step_count=CHOICES,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    episode = get_state_machine_test(Episode, settings=settings).hypothesis.fuzz_one_input

    def one(data: bytes) -> None:
        if data:
            Episode.target_of_input = targets[data[0] % CLUSTERS]
            try:
                episode(data[1:])
            except Killed as by:
                report(steps.taken, str(by))
                os._exit(0)
        if steps.taken >= budget:
            report(steps.taken, None)
            os._exit(0)

    options = [f"-seed={seed}", f"-max_len={BYTES_MAX}", "-len_control=0", "-rss_limit_mb=0"]
    atheris.Setup(["fuzz", *options, "-verbosity=0"], one)
    atheris.Fuzz()


def instrument() -> None:
    """Let Atheris see the branches of these modules."""
    for module in [m for name, m in sys.modules.items() if name.startswith(INSTRUMENTED)]:
        for part in list(vars(module).values()):
            if getattr(part, "__module__", None) == module.__name__:
                for each in vars(part).values() if isinstance(part, type) else (part,):
                    if isinstance(each, FunctionType):
                        atheris.instrument_func(each)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--given", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    released = CampaignFolder(args.given).state().progress
    known = frozenset(each.signature.check for each in released.found)
    make = maker("live").search
    make(Plan(0, True).cluster(0))  # reads what vLLM as released does
    instrument()
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name, mistake in MISTAKES.items():
            row = {"mistake": name, "method": "atheris", "seed": seed}

            def report(steps: int, by: str | None, row: dict[str, object] = row) -> None:
                with args.out.open("a") as file:
                    file.write(json.dumps({**row, "steps": steps, "by": by}) + "\n")

            if (child := os.fork()) == 0:
                fuzz(make, mistake, seed, args.steps, report, known - {mistake.finds})
                os._exit(1)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
