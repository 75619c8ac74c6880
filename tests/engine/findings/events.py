"""KV events as a router receives them, from vLLM's publisher. The router runs in the engine's
process."""

from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import Engine, Seen, alone
from tests.engine.workloads import tokens

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


@alone("unequal", {"kv_events_config": CONFIG}, named=("cached_key_can_be_hit",))
def end_of_prompt_cached_in_wider_block(engine: Engine) -> Iterator[Seen]:
    """The end of a prompt is cached under a key that no lookup uses: a prompt of two blocks of full
    attention. The last hash before its end is inside a block."""
    assert engine.inside("groups") == [["SlidingWindowSpec", 32], ["FullAttentionSpec", 64]]
    engine.inside(f"{__name__}:listen")
    engine.ask(tokens(1, 128), 1)
    events = engine.inside(f"{__name__}:stored")
    full = [each["tokens"] for each in events if each["group"] == 1]
    yield Seen("tokens of each event of full attention", full, [128])


@alone(
    "full",
    {"max_model_len": 96, "num_gpu_blocks_override": 5, "kv_events_config": CONFIG},
    named=("events_replay_to_the_cache",),
)
def removal_of_one_copy_reported(engine: Engine) -> Iterator[Seen]:
    """One of two blocks with the same hash is evicted, and a router forgets the prefix: a prompt of
    two full blocks twice, then another one that takes a block."""
    prompt = tokens(1, 64)
    engine.inside(f"{__name__}:listen")
    for sent in (prompt, prompt, tokens(2, 64)):
        engine.ask(sent, 1)
    known = engine.inside(f"{__name__}:known")
    hit = engine.ask([*prompt, 3], 1).cached
    yield Seen("blocks that a router knows, and blocks hit", [known, hit // 32], [4, 2])


@alone(
    "mamba",
    {"mamba_cache_mode": "align", "kv_events_config": CONFIG},
    named=("events_carry_their_tokens",),
    of_patch=("events_carry_their_tokens",),
)
def report_spans_skipped_blocks(engine: Engine) -> Iterator[Seen]:
    """An event names one Mamba state and carries the tokens of several blocks: a prompt of three
    blocks and a token."""
    engine.inside(f"{__name__}:listen")
    engine.ask(tokens(1, 3 * 32 + 1), 1)
    events = engine.inside(f"{__name__}:stored")
    carried = [(each["group"], each["tokens"]) for each in events]
    named = [(each["group"], each["hashes"] * each["block_size"]) for each in events]
    yield Seen("tokens in each event, by group", carried, named)
