"""Three ways to keep Mamba states in align mode, side by side (vllm#43587).

    python benchmarks/remedies.py

prints the table of docs/explanation/remedies.md. The traffic is the one that the issue describes:
prompts that share a prefix and differ before the last block, submitted one after the other. The
model runs the traffic under each rule; no figure is an estimate.
"""

from typing import NamedTuple

from kvproof.model import termination
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.faults.registry import fault_named
from kvproof.model.machine import ModelMachine
from kvproof.model.planting import Replaced, planted

BLOCK = 4
SHARED = "abcdefghijklmnop"
"""The shared prefix: four blocks. Each prompt continues with three blocks of its own."""


class Remedy(NamedTuple):
    """The costs and benefits of a rule. Tokens and blocks are sums over the requests."""

    name: str
    origin: str
    cached_tokens: int
    scheduling_rounds: int
    blocks_held: int
    states_cached: int


def one_block(start: int, tokens: int, prefill_end: int, known: int, size: int, *rest: int) -> int:
    """A chunk of the prefill that is no longer than a block."""
    if start < prefill_end:
        tokens = min(tokens, size)
    return int(align_chunk(start, tokens, prefill_end, known, size, *rest))


LAST_ONLY = fault_named("state_only_at_last_boundary").replaces

REMEDIES: tuple[tuple[str, str, Replaced], ...] = (
    ("state at the last boundary only", "vllm#43587", LAST_ONLY),
    (
        "one aligned block per step",
        "vllm#43628",
        {**LAST_ONLY, "arithmetic.counts:align_chunk": one_block},
    ),
    ("state where prompts part", "vllm#37898", {}),
)


def traffic(requests: int = 4) -> Cluster:
    """One hybrid engine with enough blocks for all requests, and prompts that differ after four
    blocks."""
    jobs = tuple(
        Job(f"r{i}", SHARED + "".join(chr(ord("A") + i) for _ in range(3 * BLOCK + 1)))
        for i in range(requests)
    )
    groups = (Group("full", BLOCK), Group("mamba", BLOCK))
    engine = EngineConfig("E", groups, num_blocks=200, chunk_tokens=64)
    return Cluster("incremental prompts", (engine,), jobs)


def measure(cluster: Cluster, name: str, origin: str) -> Remedy:
    """Run the traffic, one request after the other, and measure it."""
    machine = ModelMachine(cluster)
    cached = rounds = held = 0
    for job in cluster.jobs:
        machine.take(Submit("E", job.name))
        while not termination.over(machine.state):
            step = machine.take(Schedule("E"))
            rounds += 1
            cached += sum(a.hit for a in step.effects.admissions)
            held += sum(1 for b in machine.state.engine("E").blocks if b.refs)
            machine.take(Complete("E"))
    states = sum(len(b) for (group, _), b in machine.state.engine("E").cached if group == 1)
    return Remedy(name, origin, cached, rounds, held, states)


def table(requests: int = 4) -> list[Remedy]:
    """One row for each rule, all with the same traffic."""
    cluster = traffic(requests)
    rows = []
    for name, origin, replaced in REMEDIES:
        with planted(replaced):
            rows.append(measure(cluster, name, origin))
    return rows


def lines() -> list[str]:
    """The table in Markdown."""
    headings = [name.replace("_", " ") for name in ("rule", *Remedy._fields[1:])]
    rows = [headings, *(list(map(str, row)) for row in table())]
    shown = [f"| {' | '.join(row)} |" for row in rows]
    return [shown[0], "|---" * len(headings) + "|", *shown[1:]]


if __name__ == "__main__":
    print("\n".join(lines()))
