"""The profile of a vLLM: which of the known findings it has.

It is found out by following the trace of each on it. It is kept in the cache folder by the hash of
the vLLM's files, so an unknown vLLM gets its profile once, in a few seconds.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from kvproof.cli.own_code import fingerprint as of_kvproof
from kvproof.gate.difference.judged import followed
from kvproof.invariants.registry import CHECKS
from kvproof.live.known import traces
from kvproof.live.known.registry import KNOWN
from kvproof.live.releases import cache_folder
from kvproof.live.trees import fingerprint, named
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.files.decoding import decoded_json
from kvproof.model.files.folders import made_folder
from kvproof.model.files.reading import read_text
from kvproof.model.files.writing import replace
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine
from kvproof.reports import live_line

Make = Callable[[Cluster], Machine]


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """The names of the known findings that a vLLM has, and of those whose trace cannot be
    followed on it."""

    has: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def known(self) -> list[KnownFinding]:
        """The known findings that may explain what is found on this vLLM."""
        return [KNOWN[name] for name in (*self.has, *self.unknown) if name in KNOWN]


def profile(make: Make, cache: Path | None) -> Profile:
    """Return the profile of the vLLM that this process has imported, from the cache folder if it is
    there. `make` makes a live machine."""
    kept = _place(cache)
    if kept is not None and (found := _read(kept)) is not None:
        return found
    live_line.show("following the traces of the known findings ...")
    found = inferred(make)
    if kept is not None:
        with suppress(UsageError):  # a cache that cannot be written to only costs time
            replace(kept, msgspec.json.encode(found))
    return found


def inferred(make: Make) -> Profile:
    """Follow the traces, and return the profile that they show."""
    has, unknown = [], []
    for name, trace in traces.all_of():
        if name not in KNOWN:
            continue
        try:
            found = followed(trace.cluster, make, trace.events, CHECKS.values(), [KNOWN[name]])
        except (AdapterDrift, Exception):  # also a mistake of the adapter on this vLLM
            unknown.append(name)
            continue
        if any(key.by == name for key in found.breaks):
            has.append(name)
    return Profile(tuple(has), tuple(unknown))


def without_trace() -> list[str]:
    """Return the known findings that no search uses, because nothing shows whether a vLLM has
    them."""
    return sorted(KNOWN.keys() - {path.parent.name for path in traces.paths()})


def _place(cache: Path | None) -> Path | None:
    """Return the file of the profile; None where there is no cache folder."""
    try:
        folder = made_folder(cache_folder(cache) / "profiles")
        return folder / f"{fingerprint(named(None, cache))}-{of_kvproof()}.json"
    except UsageError:
        return None


def _read(path: Path) -> Profile | None:
    try:
        return decoded_json(read_text(path, "profile"), Profile, "the profile", "another")
    except UsageError:
        return None
