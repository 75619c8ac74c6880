"""The ghost state of an engine: history that only invariants need, and no engine has.

It is computed from observed states and events alone (see `ghost`), so that it is the same for the
model, for a vLLM that is driven and for one that is only watched. What a machine does never depends
on it.
"""

from typing import NamedTuple

from kvproof.model.kv_events import Keys

PREFIX_EVICTED = -1
"""In place of what a prompt shares: part of it was evicted before the rest was computed."""


class Served(NamedTuple):
    """A prompt whose prefill completed here, and what it shared with those served before it."""

    prompt: str
    shared: int


class Ghost(NamedTuple):
    """`served` are the prompts whose prefill completed here, where nothing was evicted since.

    `mirror` is what a listener to the KV events takes to be cached.

    `shared` has, for each request, the longest prefix (whole blocks) that a prompt served before
    its last admission had in common with it, 0 where it holds no blocks, or NOT_WHOLE where a block
    of its prompt has lost its cache entry while it was computed.
    """

    served: tuple[Served, ...] = ()
    mirror: Keys = ()
    shared: tuple[tuple[str, int], ...] = ()


EMPTY = Ghost()
"""The ghost state before the first event."""
