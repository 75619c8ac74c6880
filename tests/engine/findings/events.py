"""KV events as a router receives them, from vLLM's publisher."""

from typing import Any

PLACE = "ipc://kv-events"
"""In the working directory of the engine's process."""

CONFIG = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": PLACE}

_socket: Any = None


def listen(_llm: Any) -> None:
    """Listen from now on."""
    import zmq

    global _socket
    _socket = zmq.Context().socket(zmq.SUB)
    _socket.connect(PLACE)
    _socket.setsockopt(zmq.SUBSCRIBE, b"")


def received(_llm: Any) -> list[Any]:
    """The events since the last call."""
    import msgspec
    from vllm.distributed.kv_events import KVEventBatch

    decoder = msgspec.msgpack.Decoder(KVEventBatch)
    events: list[Any] = []
    while _socket.poll(500):
        events += decoder.decode(_socket.recv_multipart()[-1]).events
    return events


def stored(llm: Any) -> list[dict[str, Any]]:
    """The blocks that were reported as cached."""
    return [
        {
            "hashes": len(event.block_hashes),
            "tokens": len(event.token_ids),
            "block_size": event.block_size,
            "group": event.group_idx,
        }
        for event in received(llm)
        if type(event).__name__ == "BlockStored"
    ]


def known(llm: Any) -> int:
    """The number of hashes in the set that a router keeps."""
    hashes: set[Any] = set()
    for event in received(llm):
        if type(event).__name__ == "BlockStored":
            hashes |= set(event.block_hashes)
        elif type(event).__name__ == "BlockRemoved":
            hashes -= set(event.block_hashes)
        else:
            hashes.clear()
    return len(hashes)
