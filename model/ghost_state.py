"""The ghost state of an engine: history that the invariants need and that no engine stores.

It is computed from observed states and events only (see `ghost`), so it is the same for the model,
for a vLLM that kvproof drives, and for a vLLM that kvproof only observes. The behaviour of a
machine never depends on it.
"""

from typing import NamedTuple

from kvproof.model.kv_events import Keys

PREFIX_EVICTED = -1
"""A value of `Ghost.shared`: a part of the prompt was evicted before the rest was computed."""


class Served(NamedTuple):
    """A prompt whose prefill completed on this engine, and the tokens that it shared with prompts
    served before it."""

    prompt: str
    shared: int


class Ghost(NamedTuple):
    """The ghost state of one engine. `served` has the prompts whose prefill completed on this
    engine, as long as nothing of them was evicted since.

    `mirror` has the keys that a KV-event listener assumes to be cached.

    `shared` has, for each request, the longest prefix (in tokens of whole blocks) that it shares
    with a prompt served before its last admission. It is 0 where the request holds no blocks, and
    PREFIX_EVICTED where a block of its prompt lost its cache entry during the prefill.
    """

    served: tuple[Served, ...] = ()
    mirror: Keys = ()
    shared: tuple[tuple[str, int], ...] = ()


EMPTY = Ghost()
"""The ghost state before the first event."""
