"""Whether a step, read as counts, is one of the count-level systems: what ties the proofs to the
model and to live vLLM."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.model.arithmetic.system import Action
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction import project_pool, project_table, project_transfer
from kvproof.model.counting_abstraction.observed import Move, Observed
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.reference.rules import Rules
from kvproof.model.step import Step

Projection = Callable[[Cluster, Rules, Step], Iterator[Observed]]

PROJECTIONS: tuple[Projection, ...] = (
    project_table.observed,
    project_pool.observed,
    project_transfer.observed,
)
"""How the counts of a step are read: its block tables, its pools, its transfers."""


def _results(sizes: Any, action: Action, at: Any, move: Move) -> Iterator[Any]:
    values = dict(move.choices)
    options = [values[name] for name in action.choices(sizes)]
    for chosen in itertools.product(*options):
        if action.may(sizes, at, *chosen):
            yield action.then(sizes, at, *chosen)


@functools.lru_cache(maxsize=20_000)
def _reaches(
    rules: Rules, system: str, sizes: Any, before: Any, moves: tuple[Move, ...]
) -> set[Any]:
    """The counts that the moves may lead to."""
    actions = {action.name: action for action in systems(rules)[system].actions}
    here = {before}
    for move in moves:
        here = {after for at in here for after in _results(sizes, actions[move.action], at, move)}
    return here


def unmatched(
    project: Projection, cluster: Cluster, rules: Rules, step: Step
) -> Iterator[tuple[str, ...]]:
    """For each part of the state that a step changes in a way the count-level systems do not know:
    which, how it was, what was done, and how it is. The systems know no follow-up turns, and no
    transfer that begins on D: a cluster with turns, or one that pushes, is not asked about."""
    if cluster.follow_up_turns or cluster.pushes:
        return
    for seen in project(cluster, rules, step):
        led = _reaches(rules, seen.system, seen.sizes, seen.before, seen.moves)
        if seen.after not in led:
            yield (
                f"{seen.about} ({seen.system}) was {told(seen.before)}",
                f"its sizes are {told(seen.sizes)}",
                f"the step did {' and '.join(map(_done, seen.moves)) or 'nothing'} to it",
                f"it is {told(seen.after)}, which the proofs do not allow",
            )


def _done(move: Move) -> str:
    settled = ", ".join(f"{n} {v[0]}" for n, v in move.choices if len(v) == 1)
    return f"{move.action}({settled})"


def told(counts: Any) -> str:
    """The counts that are not 0."""
    return ", ".join(f"{n} {v}" for n, v in counts._asdict().items() if v) or "nothing"
