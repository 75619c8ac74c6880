"""The front of an engine: what it sends to the engine about a request that it refuses."""

import functools
from collections.abc import Coroutine
from typing import Any

from kvproof.live import adapt
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
def drivable() -> bool:
    """Whether the front of this release can be made without a server."""
    try:
        refused("trial", [1], {"do_remote_prefill": True})
    except (ImportError, AdapterDrift):
        return False
    return True


def _parts() -> tuple[Any, Any, Any]:
    """The API of completions, its requests, and the client of the engine."""
    return (
        adapt.first(["vllm.entrypoints.openai.completion.serving:OpenAIServingCompletion"]),
        adapt.first(["vllm.entrypoints.openai.completion.protocol:CompletionRequest"]),
        adapt.first(["vllm.v1.engine.async_llm:AsyncLLM"]),
    )


def refused(name: str, prompt: list[int], params: dict[str, Any]) -> list[Any]:
    """The requests that the engine receives when the front refuses a request with these
    `kv_transfer_params`. The request asks for streamed beam search, which no release serves. Raises
    AdapterDrift."""
    serving, kind, engine = _parts()
    client, front = unstarted(engine), unstarted(serving)
    client.engine_core = received = Received()
    front.engine_client, front.has_kv_connector = client, True
    request = kind(
        prompt=prompt,
        stream=True,
        use_beam_search=True,
        request_id=name,
        kv_transfer_params=params,
    )
    _end(front.create_completion(request))
    return received.requests


def _end(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that waits for nothing. Raises AdapterDrift where it waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AdapterDrift("The front of this vLLM waits before it refuses", API)
