"""Whether a step, projected to counts, is a transition of the count-level systems. This relates the
proofs to the model and to live vLLM."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.model.arithmetic.system import Action
from kvproof.model.because import Reasons, reason
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction import projection
from kvproof.model.counting_abstraction.projection import Move, Observed
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.step import Step

Projection = Callable[[Cluster, Step], Iterator[Observed]]

PROJECTIONS: tuple[Projection, ...] = (
    projection.of_tables,
    projection.of_pools,
    projection.of_transfers,
)
"""The projections of a step: its block tables, its pools, its transfers."""


def _results(sizes: Any, action: Action, at: Any, move: Move) -> Iterator[Any]:
    values = dict(move.choices)
    options = [values[name] for name in action.choices(sizes)]
    for chosen in itertools.product(*options):
        if action.may(sizes, at, *chosen):
            yield action.then(sizes, at, *chosen)


@functools.lru_cache(maxsize=20_000)
def _reaches(system: str, sizes: Any, before: Any, moves: tuple[Move, ...]) -> set[Any]:
    """The counts that the moves can produce."""
    actions = {action.name: action for action in systems()[system].actions}
    here = {before}
    for move in moves:
        here = {after for at in here for after in _results(sizes, actions[move.action], at, move)}
    return here


def left_out(cluster: Cluster) -> Iterator[str]:
    """Why no step of a cluster is projected; empty where steps are. The systems have no transfer
    from D to P, as follow-up turns have it, and none that D begins, as push has it."""
    if cluster.follow_up_turns:
        yield "follow-up turns"
    if cluster.pushes:
        yield "push"


def not_projected(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The parts of a cluster whose steps are not projected, each with the reason."""
    whole = tuple(left_out(cluster))
    yield from (("any step", why) for why in whole)
    for cfg in cluster.engines if not whole else ():
        skipped = tuple(projection.tables_left_out(cluster, cfg))
        yield from (("the block tables of an engine", why) for why in skipped)
        if not skipped and any(projection.splits_elsewhere(cfg, each) for each in cfg.groups):
            yield "the table of a Mamba group", "smaller blocks beside it"


def unmatched(cluster: Cluster, step: Step, project: Projection) -> Iterator[Reasons]:
    """For each part of the state that a step changes in a way that the count-level systems do not
    allow: the part with its counts before, its sizes, the actions, and its counts after. Nothing is
    judged of a cluster that is left out."""
    if any(left_out(cluster)):
        return
    for seen in project(cluster, step):
        led = _reaches(seen.system, seen.sizes, seen.before, seen.moves)
        if seen.after not in led:
            yield (
                reason(
                    "was",
                    "{part} ({system}) was {counts:counts}",
                    part=seen.about,
                    system=seen.system,
                    counts=_counted(seen.before),
                ),
                reason("sizes", "its sizes are {counts:counts}", counts=_counted(seen.sizes)),
                reason(
                    "moves", "the step did {moves:all} to it", moves=[_done(m) for m in seen.moves]
                ),
                reason(
                    "is",
                    "it is {counts:counts}, which the proofs do not allow",
                    counts=_counted(seen.after),
                ),
            )


def _done(move: Move) -> str:
    settled = ", ".join(f"{n} {v[0]}" for n, v in move.choices if len(v) == 1)
    return f"{move.action}({settled})"


def _counted(counts: Any) -> list[tuple[str, int]]:
    """The counts that are not 0, by name."""
    return [(name, count) for name, count in counts._asdict().items() if count]


def shown(counts: Any) -> str:
    """The counts that are not 0, as text."""
    return ", ".join(f"{name} {count}" for name, count in _counted(counts)) or "nothing"
