"""A fault: a historical mistake, as functions of the model that are replaced by wrong ones."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvproof.model import planting
from kvproof.model.config import Cluster
from kvproof.model.errors import NAMED, UsageError


@dataclass(frozen=True)
class Fault:
    """A mistake of the reference.

    `mistake` describes the mistake in one sentence. `in_vllm` is the function of vLLM in which it
    is made, empty where it is made in no single one. `replaces` names each function that is
    replaced, as `module:function` below `kvproof.model`, with the wrong one. A mistake in the
    arithmetic of `counts` needs no more; a mistake of the reference that the proofs are to find too
    also replaces the function of `counting_abstraction`. `breaks` are the ids of the invariants
    expected to find it. `cluster` is the name of the smallest preset in which it has an effect.
    `concerns` returns for a cluster whether the fault can have an effect there; a violation in any
    other cluster has another cause.

    Raises TypeError where the model has no such function, where the wrong one does not take the
    same arguments, and where `breaks` is no tuple.
    """

    name: str
    origin: str
    mistake: str
    replaces: planting.Replaced
    breaks: tuple[str, ...]
    cluster: str
    trace_events: int
    in_vllm: str = ""
    also_in: tuple[str, ...] = ()
    dies_in: tuple[str, ...] = ()
    refutes: frozenset[str] = frozenset()
    refutes_in_turn: frozenset[str] = frozenset()
    concerns: Callable[[Cluster], bool] = lambda _cluster: True

    def __post_init__(self) -> None:
        for name, wrong in self.replaces.items():
            planting.check(name, wrong)
        if type(self.breaks) is not tuple:
            raise TypeError(f"breaks is no tuple. Use ({self.breaks!r},)")

    @property
    def clusters(self) -> tuple[str, ...]:
        """The presets in which it shows, the smallest first."""
        return (self.cluster, *self.also_in)

    @property
    def all_refuted(self) -> frozenset[str]:
        """The claims about counts that do not hold under it."""
        return self.refutes | self.refutes_in_turn


def replaced_by(faults: Iterable[Fault]) -> planting.Replaced:
    """What these faults replace together. Raises UsageError if two replace the same function."""
    chosen = list(faults)
    times = Counter(name for fault in chosen for name in fault.replaces)
    if any(count > 1 for count in times.values()):
        raise UsageError(
            f"The faults {', '.join(f.name for f in chosen[:NAMED])} replace the same function. "
            "Use one fault for each function."
        )
    return {name: wrong for fault in chosen for name, wrong in fault.replaces.items()}


@contextlib.contextmanager
def planted(*faults: Fault) -> Iterator[None]:
    """Have these faults in the model until the block ends. Raises UsageError if two replace the
    same function."""
    with planting.planted(replaced_by(faults)):
        yield
