"""The front of an engine: what it passes on to the engine of a request that it refuses."""

import functools
from collections.abc import Coroutine
from typing import Any

from kvproof.live import adapt
from kvproof.live.fake import Fake, unstarted
from kvproof.model.errors import AdapterDrift

API = "vllm.entrypoints.openai.completion"


class Received(Fake):
    """The engine behind a front: it keeps what it receives."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def add_request_async(self, request: Any) -> None:
        """A request comes."""
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
    """What the engine receives of a request with these `kv_transfer_params` that the front refuses:
    beam search that is to be streamed, which no release serves. Raises AdapterDrift."""
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
    """Run what waits for nothing. Raises AdapterDrift where it waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AdapterDrift("The front of this vLLM waits before it refuses", API)
