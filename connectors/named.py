"""Maps the hashes of KV events to prefixes, for the hashes of an engine's requests."""

from collections.abc import Iterator
from typing import Any

from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvproof.model.facts.connectors import EventMisread


class NamedPrefixes:
    """The prefixes of the requests of an engine, each with the name that KV events have for it."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.requests: list[Any] = []

    def add(self, request: Any) -> None:
        """Add the prefixes of a request, including those of its answer."""
        self.requests.append(request)

    def judged(self, event: Any) -> Iterator[EventMisread | None]:
        """For each known hash of an event: the tokens that the event carries and the prefix, if
        these tokens are not the last ones of the prefix; otherwise None."""
        prefixes = self._prefixes()
        size, tokens = event.block_size, list(event.token_ids)
        for at, name in enumerate(event.block_hashes):
            carried = tokens[at * size : (at + 1) * size]
            prefix = prefixes.get(name)
            if prefix is None or not carried:
                continue
            right = prefix[-len(carried) :] == carried
            yield None if right else EventMisread(_text(carried), _text(prefix))

    def _prefixes(self) -> dict[Any, list[int]]:
        return {
            maybe_convert_block_hash(block_hash): list(
                request.all_token_ids[: (at + 1) * self.block_tokens]
            )
            for request in self.requests
            for at, block_hash in enumerate(request.block_hashes)
        }


def _text(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))
