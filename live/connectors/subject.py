"""The connector under test: its name and its settings."""

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproof.live.contract.features import KIT
from kvproof.live.contract_check import check
from kvproof.live.encoder_settings import ENCODER
from kvproof.model.config import Group
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.plans.connector import ROUTES, Another, Options, TransferParams, Unlike, Who

PARTS = ("connectors", "secondary_tiers")
"""The settings that have connectors, or tiers, inside a connector."""

EXTRA = "kv_connector_extra_config"


class NoConnector(UsageError):
    """There is no connector of this name. `why` and `instead` (what to use instead) are a sentence
    each."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(f"{why}. {instead}.")
        self.why = why


@dataclass(frozen=True)
class TestedConnector:
    """The connector under test: a name that vLLM has registered, or `module:Class`, and its
    `kv_connector_extra_config`. `keeps_prompts` says that it stores each whole block of a prompt
    that was computed, and forgets it only if what is behind it fails. `forgets` says that what is
    behind it may lose all that it has at any time, and fail: files in `{tmp}`, or a Mooncake store.
    With `images`, requests have images too; so they have if `extra` has the settings of an
    encoder-cache connector (`ec_transfer_config`), which the engine has then beside. With `ranks`,
    it is driven with several ranks of context and of tensor parallelism too, each with a worker.
    With `pair`, it is driven between two engines: one computes the prompt, the other loads it;
    `unequal` are numbers of tensor-parallel ranks of the first and of the second on which it runs
    where they differ; with `at_once`, both get a request at the same time. With `equal_blocks`, its
    settings hold where the blocks of all cache groups have one size alone. `asks` is what a request
    may ask of it. Where what is behind it outlives an engine, `restarts` says what may be another
    one in the next engine that is started over it: the connector keeps their KV apart by itself.
    With `replicas`, it is driven in the engines of data parallelism too, side by side. With
    `hidden`, it saves the hidden states of prompts, and the engine has a drafter that keeps them.
    With `in_pages`, the bytes of `extra` are pages of memory, one for each chunk (`pages`).
    `options` are what else its user may set: a plan has some of them, and each keeps what is true
    of the connector here. In a pair the first may be `unlike` the second: the connector is to see
    that. With `narrow`, one of a pair may have narrower blocks. With `buffered`, a pair is driven
    too on a device whose memory it cannot read: KV goes through buffers of the host. With
    `by_block`, each block is stored under a key of its own, so one that is being stored needs no
    second copy."""

    name: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    keeps_prompts: bool = False
    forgets: bool = False
    images: bool = False
    ranks: bool = False
    pair: bool = False
    unequal: tuple[tuple[int, int], ...] = ()
    equal_blocks: bool = False
    asks: tuple[TransferParams, ...] = ()
    restarts: tuple[Another, ...] = ()
    replicas: bool = False
    hidden: bool = False
    in_pages: bool = False
    options: tuple[Options, ...] = ()
    unlike: tuple[Unlike, ...] = ()
    narrow: bool = False
    at_once: bool = False
    buffered: bool = False
    by_block: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError where settings that are read here have no parts to read."""
        for name in PARTS:
            parts = self.extra.get(name, ())
            if not (isinstance(parts, list | tuple) and all(isinstance(e, Mapping) for e in parts)):
                raise UsageError(f"The setting {name} is no list. Use a list of objects.")
        if not all(isinstance(each.get("kv_connector"), str) for each in self._inside):
            raise UsageError(
                "A connector in the setting connectors has no name. Use kv_connector with a name."
            )
        if not all(isinstance(each.get(EXTRA, {}), Mapping) for each in self._inside):
            raise UsageError(f"The setting {EXTRA} is no object. Use an object with settings.")
        if not isinstance(self.extra.get(ENCODER, {}), Mapping):
            raise UsageError(f"The setting {ENCODER} is no object. Use an object with settings.")

    def settings(self, folder: Path, options: Iterable[tuple[str, Any]] = ()) -> dict[str, Any]:
        """The settings of `KVTransferConfig`, with some options. `{tmp}` in a text is replaced by
        this folder."""
        module, colon, kind = self._place
        sized = self.extra
        if self.in_pages:
            sized = _in_pages(sized)
        extra = _in_folder({**sized, **dict(options)}, str(folder))
        place = {"kv_connector_module_path": module} if colon else {}
        # Files in shared memory have this name.
        name = f"kvproof-{os.getpid()}"
        return {
            "kv_connector": kind,
            EXTRA: extra,
            "engine_id": name,
            "kv_buffer_device": "cpu",
            **place,
        }

    @property
    def classes(self) -> tuple[str, ...]:
        """The connector's class, and the classes of the connectors inside it."""
        return (self.name, *(each["kv_connector"] for each in self._inside))

    @property
    def _inside(self) -> Sequence[Mapping[str, Any]]:
        """The connectors inside this one, as vLLM takes them."""
        inside: Sequence[Mapping[str, Any]] = self.extra.get("connectors", ())
        return inside

    @property
    def has_peers(self) -> bool:
        """Whether one of its tiers is another engine. Then it is driven in two engines
        (`EnginePeers`)."""
        return any(each.get("type") == "p2p" for each in self.extra.get("secondary_tiers", ()))

    @property
    def loops(self) -> tuple[Who, ...]:
        """Whose loop may stand while others go on."""
        engines: tuple[Who, ...] = ("first", "second") if self.pair or self.has_peers else ()
        return (*engines, "store") if self.forgets else engines

    @property
    def demands(self) -> tuple[TransferParams, ...]:
        """What a request may ask of it. Of one of two engines, it may ask for the other's KV."""
        return ROUTES if self.has_peers else self.asks

    @property
    def is_plain_store(self) -> bool:
        """Whether it stores KV of one engine, and needs nothing else of the engine."""
        return not (self.pair or self.has_peers or self.has_images or self.hidden)

    @property
    def has_images(self) -> bool:
        """Whether requests have images."""
        return self.images or ENCODER in self.extra

    @property
    def _place(self) -> tuple[str, str, str]:
        """The module, a colon, and the class; the class alone if no module is given."""
        module, colon, kind = self.name.rpartition(":")
        if module.endswith(".py"):
            return _loaded(Path(module)), colon, kind
        return module, colon, kind

    @property
    def kind(self) -> type:
        """The class of the connector. Raises UsageError if there is none of this name, and
        AdapterDrift if this vLLM lacks a name that the kit needs."""
        check().require([KIT])
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

        from kvproof.live.fakes.lmcache import MODULES  # needs torch
        from kvproof.live.fakes.replaced import in_place

        module, colon, name = self._place
        try:
            if colon:
                found: type = getattr(importlib.import_module(module), name)
            else:
                with in_place(MODULES):
                    found = KVConnectorFactory.get_connector_class_by_name(name)
                    for inside in self._inside:
                        if "kv_connector_module_path" not in inside:
                            KVConnectorFactory.get_connector_class_by_name(inside["kv_connector"])
        except (ImportError, AttributeError, ValueError, SyntaxError) as error:
            raise NoConnector(
                f"There is no connector {self.name!r} ({str(error).rstrip('.')})",
                "Use a name that vLLM has registered, module:Class, or FILE.py:Class",
            ) from error
        if not (isinstance(found, type) and issubclass(found, KVConnectorBase_V1)):
            raise NoConnector(
                f"{self.name} is no KVConnectorBase_V1",
                "Use a class that extends vLLM's base class",
            )
        return found

    def takes(self, groups: Sequence[Group], local: bool) -> bool:
        """Whether the connector is driven with these cache groups. NIXL recognises only sliding
        windows as windows."""
        if self.equal_blocks and len({group.block_size for group in groups}) > 1:
            return False
        return not (self.pair and local)

    @property
    def supports_groups(self) -> bool:
        """Whether the connector supports several cache groups (`SupportsHMA`; a MultiConnector only
        if all its connectors do)."""
        from vllm.config import KVTransferConfig

        from kvproof.live.build import supports_groups

        self.kind  # noqa: B018 (raises UsageError)
        settings = self.settings(Path())
        return supports_groups(KVTransferConfig(kv_role="kv_both", **settings))


BYTES = "cpu_bytes_to_use"

BLOCKS_OF_PAGE = 16
"""The size of a memory page, in blocks of the kit."""

OFFLOAD = "vllm.v1.kv_offload"

ROUNDS = f"{OFFLOAD}.cpu.shared_offload_region:SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT"

BEFORE_ROUNDING = (
    f"{OFFLOAD}.cpu.gpu_worker:CpuGpuOffloadingHandlers",
    f"{OFFLOAD}.worker.cpu_gpu:CpuGpuOffloadingHandlers",
)
"""Names that only releases before the rounding to pages have."""


def _in_pages(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, for this vLLM, of a connector whose capacity is counted in pages. Since
    vllm#43689 a chunk fills whole pages of memory in OffloadingConnector's CPU tier. The kit's
    blocks are far smaller than a page, so before that the same bytes had room for many more chunks,
    and nothing was ever evicted."""
    from kvproof.live.fakes.replaced import found  # needs torch

    rounds = found(ROUNDS) is not None or not any(map(found, BEFORE_ROUNDING))
    return {**extra} if rounds else {**extra, BYTES: extra[BYTES] // BLOCKS_OF_PAGE}


def _in_folder(value: Any, folder: str) -> Any:
    """A copy of a JSON value, with this folder for `{tmp}` in its texts."""
    if isinstance(value, str):
        return value.replace("{tmp}", folder)
    if isinstance(value, Mapping):
        return {key: _in_folder(each, folder) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_in_folder(each, folder) for each in value]
    return value


@functools.cache
def _loaded(path: Path) -> str:
    """Import a file as a module. Returns the module's name."""
    name = f"kvproof_subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise NoConnector(f"There is no file {shown(path)}", "Use the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise NoConnector(
            f"{shown(path)} cannot be imported ({type(error).__name__}: {error})",
            "Use a file that Python imports without an error",
        ) from error
    return name
