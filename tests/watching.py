"""Live vLLM with its known findings, as tests drive it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kvproof.live.contract.features import FEATURES, used_by
from kvproof.live.contract_check import check
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.step import Step
from kvproof.strategies.conformance.watched import Watched

LATER = tuple(name for name, feature in FEATURES.items() if feature.later)
"""Features of vLLM that came after the release that is tested in full."""


def live_machine(cluster: Cluster) -> Any:
    """Fresh live vLLM for a cluster. vLLM is imported here, and not by who imports this module."""
    from kvproof.live.machine import LiveMachine

    return LiveMachine(cluster)


def step(machine: Any, engine: str = "E") -> None:
    """One step of an engine, to its end."""
    machine.take(Schedule(engine))
    if machine.state.engine(engine).step:
        machine.take(Complete(engine))


def serve(machine: Any, request: str, engine: str = "E") -> None:
    """A request of an engine from its arrival to its end."""
    machine.take(Submit(engine, request))
    while machine.nodes[engine].scheduler.requests:
        step(machine, engine)


class Counting(Watched):
    """A watched machine that counts the steps it was judged by."""

    judged = 0

    def unexplained(self, *args: Any) -> Any:
        """Count the step, and leave out what is known."""
        self.judged += 1
        return super().unexplained(*args)


def watched(cluster: Cluster, without: str = "") -> "Counting":
    """Fresh live vLLM for a cluster. All known findings are excused, `without` one of them."""
    known = [each for name, each in KNOWN.items() if name != without]
    return Counting(live_machine(cluster), known)


class Observed:
    """Live vLLM of a cluster, each engine under an observer of class `kind` if it is another.
    `found` counts the findings by check. `told` is called with each finding and the history of its
    engine."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Any = None,
        told: Callable[..., None] = lambda *_: None,
        **options: Any,
    ) -> None:
        from kvproof.watch.judge import Judge
        from kvproof.watch.observer import Observer

        def finds(finding: Finding, history: Any) -> None:
            self.found[finding.invariant] += 1
            told(finding, history)

        self.found: Counter[str] = Counter()
        self.said: list[str] = []
        self.machine = live_machine(cluster)
        nodes = self.machine.nodes
        self.judges = {name: Judge(finds, self.said.append) for name in nodes}
        self.observers = {
            name: (kind or Observer)(node.scheduler, self.judges[name], name, **options)
            for name, node in nodes.items()
        }

    def take(self, *events: Event) -> Step:
        """Take events. Gives the last step."""
        return [self.machine.take(event) for event in events][-1]


def is_later(cluster: Cluster) -> bool:
    """Whether the cluster uses a feature that not every vLLM has."""
    return any(feature in used_by(cluster) for feature in LATER)


def is_undriven(cluster: Cluster) -> bool:
    """Whether the cluster uses a feature that came later than this vLLM. Then no engine is built:
    the verdict would be UNKNOWN, with the name of what is missing."""
    missing = [f for f in LATER if f in used_by(cluster) and check().missing(f)]
    if missing:
        with pytest.raises(AdapterDrift, match=f"This vLLM has no .*, needed for {missing[0]}"):
            live_machine(cluster)
    return bool(missing)


CONCERNS: Mapping[str, Callable[[Cluster], Any]] = {
    "load_keeps_room_for_drafts": lambda cluster: (
        cluster.disaggregated and cluster.decode.drafts > 0
    ),
    "eagle_drop_before_the_last_token": lambda cluster: any(
        e.eagle_drop_tokens and len(e.groups) == 1 for e in cluster.engines
    ),
    "fewer_than_none_predicted": lambda cluster: any(
        e.drafts and e.aligned_group for e in cluster.engines
    ),
    "hit_without_room_waits": lambda cluster: any(
        engine.partial_block_hits for engine in cluster.engines
    ),
    "copied_before_filled": lambda cluster: any(
        engine.partial_block_hits for engine in cluster.engines
    ),
    "failed_load_stays_cached": lambda cluster: (
        bool(cluster.failures)
        and cluster.load_failure == "recompute"
        and any(e.store and e.prefix_caching for e in cluster.engines)
    ),
    "poisoned_step_counts": lambda cluster: (
        bool(cluster.failures) and any(e.store and e.overlaps for e in cluster.engines)
    ),
    "impossible_fit_waits": lambda cluster: cluster.oversized,
    "late_end_loses_session": lambda cluster: (
        cluster.sessions and any(e.overlaps for e in cluster.engines)
    ),
    "waiting_sessions_hold_on": lambda cluster: cluster.sessions,
    "held_goes_beyond_answer": lambda cluster: (
        cluster.follow_up_turns and cluster.decode.drafts > 0
    ),
    "held_is_loaded_again": lambda cluster: cluster.follow_up_turns,
    "held_list_ends_with_prompt": lambda cluster: cluster.follow_up_turns,
    "held_state_is_of_the_prompt": lambda cluster: cluster.follow_up_turns,
    "split_at_the_smallest_block": lambda cluster: any(
        group.aligned and group.block_size > min(engine.block_sizes)
        for engine in cluster.engines
        for group in engine.groups
    ),
    "end_trim_across_ratios": lambda cluster: (
        not any(engine.has_state for engine in cluster.engines)
    ),
    "lease_ends_under_writer": lambda cluster: cluster.pushes,
    "unneeded_prefill_is_not_reported": lambda cluster: cluster.pushes,
    "write_awaited_for_ever": lambda cluster: cluster.pushes,
}
"""Where some of the mistakes that vLLM is known for can have an effect; the others anywhere."""


def known_faults(cluster: Cluster) -> list[Fault]:
    """The mistakes that vLLM is known for and that concern a cluster, as faults of the model."""
    faults = [FAULTS[name] for name in KNOWN if name in FAULTS]
    return [f for f in faults if f.name not in CONCERNS or CONCERNS[f.name](cluster)]
