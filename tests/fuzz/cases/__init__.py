"""The kinds of inputs, one file each, and how often each occurs."""

from random import Random

from tests.fuzz.case import Case
from tests.fuzz.cases import (
    broken_vllm,
    checkpoints,
    clusters,
    command_lines,
    environments,
    file_kinds,
    junit_reports,
    surveys,
    traces,
)
from tests.fuzz.material import Chooser

KINDS: dict[str, tuple[Chooser, int]] = {
    "command line": (command_lines.case, 18),
    "cluster file": (clusters.case, 22),
    "trace": (traces.case, 22),
    "checkpoint": (checkpoints.case, 14),
    "JUnit report": (junit_reports.case, 5),
    "survey": (surveys.case, 4),
    "environment": (environments.case, 5),
    "file kind": (file_kinds.case, 8),
    "broken vLLM": (broken_vllm.case, 2),
}
"""Each kind with its function and its weight."""


def kind_of(seed: int, number: int) -> str:
    """The kind of the case of this number."""
    weights = [weight for _, weight in KINDS.values()]
    return Random(f"{seed}:{number}:kind").choices([*KINDS], weights)[0]


def case_of(seed: int, number: int) -> Case:
    """The case of this number; the same for the same seed."""
    kind = kind_of(seed, number)
    return KINDS[kind][0](Random(f"{seed}:{number}"), f"{seed}:{kind}", number)
