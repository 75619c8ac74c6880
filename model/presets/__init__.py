"""Named clusters: for each part of the machine, the smallest cluster that uses it.

Each preset is a JSON file in `clusters/`, in the format of `--config FILE`, with its purpose and
its number of distinct states. A new preset is a new file there. Those in `live_clusters/` combine
features that the model cannot run together.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from kvproof.model.config import Cluster
from kvproof.model.config.config_json import ClusterFile, parse
from kvproof.model.errors import NotValid, UsageError, nearest
from kvproof.model.files.decoding import KINDS, kind_of
from kvproof.model.files.reading import printable, read_text, shown
from kvproof.model.presets import random_clusters
from kvproof.model.presets.room import SUFFIX, check_room, roomy

FOLDER = Path(__file__).parent / "clusters"
LIVE_FOLDER = Path(__file__).parent / "live_clusters"

SIZE_MAX_MIB = 4
"""The size of the largest cluster file, in MiB."""


class Presets(Mapping[str, Cluster]):
    """The clusters of a folder by name. A file is read when its cluster is first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ClusterFile] = {}
        self._clusters: dict[str, Cluster] = {}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in self._folder.glob("*.json")))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._clusters:
            self._clusters[name] = self.file(name).cluster
        return self._clusters[name]

    def file(self, name: str) -> ClusterFile:
        """The file of a preset: the cluster with its notes. Raises KeyError where there is none,
        and UsageError where the cluster in it has another name, or nothing says what it is for."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._files:
            path = self._folder / f"{name}.json"
            file = _read(path)
            if file.cluster.name != name:
                raise UsageError(
                    f"The preset file {shown(path)} has the name {file.cluster.name!r}. "
                    f"Use {name!r}, as the file is called."
                )
            if not file.about.strip():
                raise UsageError(
                    f"The preset file {shown(path)} does not say what it is for. Use a sentence in "
                    "its field about."
                )
            self._files[name] = file
        return self._files[name]


CLUSTERS = Presets(FOLDER)
"""The presets by name that the model can run, and live vLLM too."""
LIVE_CLUSTERS = Presets(LIVE_FOLDER)
"""The presets by name that only live vLLM is driven with."""


def cluster_named(name: str) -> Cluster:
    """A preset by name, random:SEED, one of these with `:roomy` behind it (see `roomy`), or the
    cluster in a file: any other path that exists, or that looks like one. Raises UsageError where
    there is no such cluster."""
    if name.endswith(SUFFIX) and not Path(name).exists():
        return roomy(cluster_named(name.removesuffix(SUFFIX)))
    for presets in (CLUSTERS, LIVE_CLUSTERS):
        if name in presets:
            return presets[name]
    if name.startswith(random_clusters.PREFIX):
        return random_clusters.from_name(name)
    if name and _is_path(name):
        return _read(Path(name)).cluster
    near = nearest(name, [*CLUSTERS, *LIVE_CLUSTERS])
    raise UsageError(
        f"There is no cluster and no file named '{printable(name[:80])}'. Use {near or 'a name'}"
        f"{', or another name' if near else ''} that kvproof explain configs lists."
    )


def _is_path(name: str) -> bool:
    path = Path(name)
    try:
        path.lstat()
    except (FileNotFoundError, ValueError):
        return len(path.parts) > 1 or path.suffix == ".json"
    except OSError:
        pass  # it is there, or says itself why it cannot be read
    return True


def _read(path: Path) -> ClusterFile:
    source = f"The cluster file {shown(path)}"
    text = read_text(path, "cluster file", SIZE_MAX_MIB)
    kind = kind_of(text)
    if kind in KINDS.values() and kind != KINDS["engines"]:
        raise UsageError(f"{shown(path)} is {kind}. Use a cluster file.")
    file = parse(text, source)
    try:
        check_room(file)
    except NotValid as error:
        raise UsageError(f"{source} is not valid at $.{error.field}: {error}") from error
    return file
