"""A search as a file, so that it can continue after it was stopped or killed.

Each write replaces the whole file atomically, so the file is never incomplete. It contains plain
data and types of the model only; anything else in it is rejected and not loaded.
"""

import io
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kvproof
from kvproof.model.config import Cluster, config_json
from kvproof.model.errors import UsageError
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules
from kvproof.strategies.explorer.search_graph import SearchGraph

KIND = "kvproof-checkpoint"
MODULES = tuple(f"kvproof.model.{name}" for name in ("state", "ghost_state", "events", "phases"))


class _Plain(pickle.Unpickler):
    """Loads the types of the model and of plain data."""

    def find_class(self, module: str, name: str) -> Any:
        if module in MODULES or (module, name) == ("collections", "Counter"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a checkpoint")


def scope(
    cluster: Cluster, invariants: Iterable[str], rules: Rules, *, symmetric: bool = False
) -> dict[str, Any]:
    """The inputs of a search. A search accepts only a checkpoint with the same scope."""
    return {
        "kind": KIND,
        "kvproof": kvproof.__version__,
        "config": config_json.to_json(cluster),
        "rules": rules.differing_from(REFERENCE),
        "invariants": list(invariants),
        "symmetric": symmetric,
    }


def save(path: Path, about: dict[str, Any], reached: SearchGraph) -> None:
    """Write the search to its file and replace an earlier version. Raises UsageError if that
    fails."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            pickle.dump((about, reached.saved()), file, protocol=5)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"The checkpoint {path} cannot be written ({error.strerror}). "
            "Use a file in a folder that you may write to."
        ) from error


def load(cluster: Cluster, path: Path, about: dict[str, Any]) -> SearchGraph:
    """Load the search from a file. Raises UsageError if there is none, or if its scope is
    different."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The checkpoint {path} cannot be read ({error.strerror}). "
            "Use the name of one, or leave --resume out to start."
        ) from error
    try:
        found, data = _Plain(io.BytesIO(content)).load()
        if found != about:
            raise UsageError(
                f"The checkpoint {path} is of another search. "
                "Use the options it was started with, or leave --resume out."
            )
        return SearchGraph.restored(cluster, data)
    except UsageError:
        raise
    except Exception as error:  # a broken pickle can raise any exception
        raise UsageError(
            f"The checkpoint {path} is broken ({error}). Leave --resume out to start again."
        ) from error
