"""This module puts the cache groups of a running engine into the terms of the invariants."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import force_setattr

from kvproof.model.config import Group
from kvproof.model.needs import Need


class Unknown(Exception):
    """The invariants do not know engines of this kind. The message says why in a line."""


FULL = (
    *("FullAttentionSpec", "MLAAttentionSpec", "SinkFullAttentionSpec"),
    "HiddenStateCacheSpec",
)
"""Groups with a block for all tokens. Sinks are tokens of the model, beside those of a request."""

WINDOW = ("SlidingWindowSpec", "SlidingWindowMLASpec")

UNKNOWN = {
    "ChunkedLocalAttentionSpec": "which reads from the last multiple of a number of tokens on",
    "CrossAttentionSpec": "whose blocks hold the tokens of an encoder",
    "RSWASpec": "which reads the whole prompt and a window of the answer",
    "CircularBufferSpec": "which has one block for each request, written again and again",
    "HiSparseHotSpec": "whose blocks are copies of others",
    "HiSparseResidentSpec": "whose blocks are copies of others",
}
"""Groups that the model has no words for."""


def group(group: Any, manager: Any) -> Group:
    """Return one cache group in the terms of the invariants. Raises Unknown. The manager's block
    size counts the ranks of context parallelism, too."""
    spec, size = spec_of(group), manager.block_size
    name = type(spec).__name__
    if getattr(group, "host_resident", False):
        raise Unknown("it has a cache group in the memory of the host")
    eagle = bool(getattr(group, "is_eagle_group", False) or getattr(manager, "use_eagle", False))
    if "MambaSpec" in {each.__name__ for each in type(spec).__mro__}:
        mode = spec.mamba_cache_mode
        if mode not in ("align", "none"):
            raise Unknown(f"its Mamba layers have the cache mode {mode}")
        return _group("mamba", size, mode=mode)
    if getattr(spec, "bounded_replay", False):
        raise Unknown("its windows are not cached: the end of a hit is computed again")
    if name in WINDOW:
        return _group("window", size, window=spec.sliding_window, eagle=eagle)
    if name in FULL:
        return _group("full", size, eagle=eagle)
    why = f", {UNKNOWN[name]}" if name in UNKNOWN else ""
    raise Unknown(f"it has a cache group of {name}{why}")


def _group(kind: Any, size: int, **options: Any) -> Group:
    """Make a group, whose block size may be larger than what kvproof drives."""
    made = Group(kind, 1, **options)
    force_setattr(made, "block_size", size)
    return made


def spec_of(group: Any) -> Any:
    """Return the spec of a cache group. Layers of one kind that differ in the size of a token count
    as one."""
    spec = group.kv_cache_spec
    layers = getattr(spec, "kv_cache_specs", None)
    return next(iter(layers.values())) if layers else spec


def held_differently(groups: Iterable[Any]) -> dict[Need, str]:
    """Say what these groups keep otherwise than the checks know, with the reasons."""
    specs = [spec_of(each) for each in groups]
    hidden: dict[Need, str] = {}
    if any(getattr(spec, "extra_retained_tokens", 0) for spec in specs):
        why = "windows keep tokens for a drafter of several modules"
        hidden[Need.WINDOWS_KEPT] = why
    if any(getattr(spec, "num_prefill_checkpoint_blocks", 0) for spec in specs):
        why = "Mamba layers keep a state inside the last chunk of a prompt"
        hidden[Need.STATES_KEPT] = why
    return hidden
