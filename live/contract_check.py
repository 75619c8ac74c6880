"""The contract checked against the installed vLLM: which symbols were found, and which features can
be driven."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

from kvproof.live import contract_samples as samples
from kvproof.live.contract.entry import Entry, Place
from kvproof.live.contract.features import CORE, FEATURES, used_by, with_needs
from kvproof.live.contract.lookup import first_place
from kvproof.live.contract.table import TABLE
from kvproof.live.importing import Hidden, imported
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift

CORE_MODULES = dict.fromkeys(
    place.module
    for entry in TABLE
    if entry.feature == CORE
    for place in entry.places
    if place.module and not place.absent
)


class EntryLookup(NamedTuple):
    """The result of looking up an entry: its place, or None with a reason if the reason is known.
    If the core is incomplete, no objects can be built, and entries on objects are not `looked`
    up."""

    entry: Entry
    place: Place | None
    why: str = ""
    looked: bool = True


class Contract(NamedTuple):
    """The results of all lookups. `failure` is the reason if vLLM could not be imported,
    `traceback` has the lines of vLLM that led to it, and `lacks` is the module that is missing, if
    one is; `hidden` are the packages that were hidden from it because they do not load."""

    looks: tuple[EntryLookup, ...]
    failure: str = ""
    hidden: tuple[Hidden, ...] = ()
    traceback: tuple[str, ...] = ()
    lacks: str = ""

    def missing(self, feature: str) -> list[EntryLookup]:
        """The missing entries of a feature and of the features that it needs; entries that were
        looked up come first."""
        needed = with_needs([feature])
        lacking = [look for look in self.looks if not look.place and look.entry.feature in needed]
        return sorted(lacking, key=lambda look: not look.looked)

    def require(self, features: Iterable[str]) -> None:
        """Raise AdapterDrift with the missing entry if one of these features cannot be driven. The
        core is checked first."""
        if self.failure:
            raise AdapterDrift(f"vLLM cannot be imported ({self.failure})", "vllm")
        for feature in with_needs(features):
            lacking = self.missing(feature)
            if lacking:
                later = FEATURES[feature].later
                raise AdapterDrift(_sentence(feature, lacking), lacking[0].entry.name, later=later)


def _sentence(feature: str, lacking: list[EntryLookup]) -> str:
    first = lacking[0]
    why = f" ({first.why})" if first.why else ""
    more = f"; {len(lacking) - 1} more are missing" if len(lacking) > 1 else ""
    needed = f"needed for {feature}: {first.entry.used_for}"
    return f"This vLLM has no {first.entry.name}{why}, {needed}{more}"


@functools.cache
def check() -> Contract:
    """The contract, checked once against the vLLM that this process imports."""
    made = imported(tuple(CORE_MODULES))
    if made.failure.line:
        why = made.failure
        return Contract((), why.line, made.hidden, why.traceback, why.lacks)
    built = {entry: _look(entry, None) for entry in TABLE if not _on_objects(entry)}
    buildable = all(look.place for look in built.values() if look.entry.feature == CORE)
    looks = tuple(built.get(entry) or _look(entry, buildable) for entry in TABLE)
    return Contract(looks, hidden=made.hidden)


def _on_objects(entry: Entry) -> bool:
    return any(place.names and not place.module for place in entry.places)


def _look(entry: Entry, buildable: bool | None) -> EntryLookup:
    """Look an entry up. If the core is incomplete, no object can be built to look at."""
    if buildable is False:
        return EntryLookup(
            entry, None, "not looked up, because no engine can be built", looked=False
        )
    return EntryLookup(entry, *first_place(entry.places, samples.sample))


def require(cluster: Cluster) -> None:
    """Raise AdapterDrift if this vLLM lacks a symbol that the cluster needs."""
    check().require(used_by(cluster))
