"""Named clusters: for each part of the machine, the smallest cluster that uses it.

Each preset is a JSON file in `clusters/`, in the format of `--config FILE`, with its purpose and
its number of distinct states. A new preset is a new file there.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.config.config_json import notes, parse
from kvproof.model.errors import UsageError, unknown
from kvproof.model.presets import random_clusters

FOLDER = Path(__file__).parent / "clusters"


class Presets(Mapping[str, Cluster]):
    """The clusters of a folder by name. A file is read when its cluster is first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Cluster] = {}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in self._folder.glob("*.json")))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = parse(self._text(name), f"{name}.json")
        return self._read[name]

    def notes(self, name: str) -> dict[str, Any]:
        """The notes in a preset's file: `about`, a sentence, and `distinct_states`."""
        return notes(self._text(name), f"{name}.json")

    def _text(self, name: str) -> str:
        return (self._folder / f"{name}.json").read_text(encoding="utf-8")


CLUSTERS = Presets(FOLDER)
"""The presets by name."""


def cluster_named(name: str) -> Cluster:
    """A preset by name, random:SEED, or a cluster from a JSON file. Raises UsageError where there
    is no such cluster."""
    if name in CLUSTERS:
        return CLUSTERS[name]
    if name.startswith(random_clusters.PREFIX):
        return random_clusters.from_name(name)
    path = Path(name)
    if path.suffix != ".json":
        raise unknown("cluster", name, CLUSTERS)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The file {name} cannot be read ({error.strerror}). "
            f"Use the path of a JSON file, or one of {', '.join(CLUSTERS)}."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The file {name} is not UTF-8 text. Use one JSON object that describes a cluster."
        ) from error
    return parse(text, name)
