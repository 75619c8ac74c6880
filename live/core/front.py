"""The front of an engine: what it sends to the engine about a request that it refuses, or whose
client disconnects before the engine has it."""

import asyncio
import functools
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from kvproof.live import adapt
from kvproof.live.core.readers import Moment
from kvproof.live.fake import Fake, unstarted
from kvproof.model.errors import AdapterDrift

API = "vllm.entrypoints.openai.completion"


class Received(Fake):
    """A fake of the engine behind a front: it keeps the requests that it receives."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def add_request_async(self, request: Any) -> None:
        """Receive a request."""
        self.requests.append(request)


@functools.cache
def drivable(leaves: bool) -> bool:
    """Whether the front of this release can be made without a server, to refuse a request or, if
    its client `leaves`, to work on it."""
    try:
        refused("trial", [1], {"do_remote_prefill": True}, leaves=leaves)
    except (ImportError, AdapterDrift):
        return False
    return True


def _parts() -> tuple[Any, Any, Any]:
    """The API of completions, its requests, and the client of the engine."""
    return (
        adapt.first(["vllm.entrypoints.openai.completion.serving:OpenAIServingCompletion"]),
        adapt.first(["vllm.entrypoints.openai.completion.protocol:CompletionRequest"]),
        adapt.named("AsyncLLM"),
    )


def refused(
    name: str, prompt: list[int], params: dict[str, Any], *, leaves: bool = False
) -> list[Any]:
    """The requests that the engine receives when the front refuses a request with these
    `kv_transfer_params`: it asks for streamed beam search, which no release serves. If its client
    `leaves`, the front serves it, and the client disconnects while the prompt is prepared. Raises
    AdapterDrift."""
    serving, kind, engine = _parts()
    client, front = unstarted(engine), unstarted(serving)
    client.engine_core = received = Received()
    front.engine_client, front.has_kv_connector = client, True
    front.render_completion_request = _waits
    request = kind(
        prompt=prompt,
        stream=True,
        use_beam_search=not leaves,
        request_id=name,
        kv_transfer_params=params,
    )
    work = front.create_completion(request)
    if leaves:
        _cancel(work)
    else:
        _end(work)
    return received.requests


async def _waits(_request: Any) -> None:
    """Prepare a prompt, which takes a while."""
    await Moment()


def _end(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that waits for nothing. Raises AdapterDrift where it waits."""
    if _waits_on(work):
        work.close()
        raise AdapterDrift("The front of this vLLM waits before it refuses", API)


def _cancel(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine until it waits, and cancel it there, as a server does when its client
    disconnects. Raises AdapterDrift where it does not wait."""
    if not _waits_on(work):
        raise AdapterDrift("The front of this vLLM does not wait for a prompt", API)
    with suppress(asyncio.CancelledError, StopIteration):
        work.throw(asyncio.CancelledError())
        work.close()


def _waits_on(work: Coroutine[Any, Any, Any]) -> bool:
    """Run a coroutine to its end, or until it waits. Returns whether it waits."""
    try:
        work.send(None)
    except StopIteration:
        return False
    return True
