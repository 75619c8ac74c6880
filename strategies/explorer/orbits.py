"""Symmetry reduction on packed states: the representative of an orbit is its least state (see
`symmetry`).

Each component is renamed once, and the result is cached by its number. So a whole state is renamed
by looking up its components.
"""

from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.state import State
from kvproof.strategies.explorer import symmetry
from kvproof.strategies.explorer.collapse import Collapse, Parts


class Orbits:
    """Finds the representative of the orbit of a state."""

    def __init__(self, cluster: Cluster, collapse: Collapse) -> None:
        self.cluster, self.collapse = cluster, collapse
        self.renamings = symmetry.renamings(cluster)
        names = [engine.name for engine in cluster.engines]
        self.places = names.index(cluster.prefill.name), names.index(cluster.decode.name)
        self._ids: dict[symmetry.Ids, int] = {}
        self._ids_list: list[symmetry.Ids] = []
        self._engines: dict[tuple[int, int], tuple[int, int]] = {}
        self._between: dict[tuple[int, ...], Parts] = {}

    def least(self, parts: Parts) -> tuple[Parts, int]:
        """The representative of a state, and the number of a renaming that leads to it."""
        return min((self.image(parts, turn), turn) for turn in range(len(self.renamings)))

    def image(self, parts: Parts, turn: int) -> Parts:
        """The renamed state, with block ids in the order of first occurrence."""
        count = len(self.collapse.engines)
        engines = [self._engine(turn, number) for number in parts[:count]]
        key = (turn, *parts[count:], *(engines[place][1] for place in self.places))
        between = self._between.get(key)
        if between is None:
            between = self._between[key] = self._renamed_between(key)
        return (*(number for number, _ in engines), *between)

    def _engine(self, turn: int, number: int) -> tuple[int, int]:
        """The number of a renamed engine, and that of the new ids of its blocks."""
        found = self._engines.get((turn, number))
        if found is None:
            engine = self.collapse.components[number]
            engine = symmetry.renamed_engine(engine, self.renamings[turn])
            ids = symmetry.first_ids(engine)
            image = self.collapse.number(symmetry.with_ids(engine, ids))
            if ids not in self._ids:
                self._ids[ids] = len(self._ids_list)
                self._ids_list.append(ids)
            found = self._engines[turn, number] = image, self._ids[ids]
        return found

    def _renamed_between(self, key: tuple[int, ...]) -> Parts:
        turn, *numbers, p, d = key
        nothing: list[Any] = [None] * len(self.collapse.engines)
        state = self.collapse.join([*nothing, *map(self.collapse.components.__getitem__, numbers)])
        transfers, *rest = symmetry.renamed_between(state[1:], self.renamings[turn])
        ids = self._ids_list[p], self._ids_list[d]
        transfers = symmetry.transfers_with_ids(self.cluster, transfers, *ids)
        parts = self.collapse.split(State(tuple(nothing), transfers, *rest))
        return tuple(map(self.collapse.number, parts[len(nothing) :]))
