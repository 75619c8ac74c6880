"""A prefill engine P and a decode engine D in two processes, with real NIXL on the loopback."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.process import Answer, Process
from tests.engine.workloads import add, tokens

LOCAL = "127.0.0.1"

HANGS_S = 900
"""An engine that has not answered after so long hangs: two of them share a machine with others."""


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        return int(taken.getsockname()[1])


def transfer(role: str, buffer: str = "cpu") -> dict[str, Any]:
    """The kv_transfer_config of one side. `buffer` is the device between whose memories NIXL
    copies."""
    return {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_buffer_device": buffer,
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"backends": ["UCX"]},
    }


@contextmanager
def pair(
    models: Path,
    mode: str | None,
    *,
    environment: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> Iterator[tuple[Process, Process]]:
    """The processes of P and D, with this environment beside the one that they inherit."""

    def side() -> Process:
        own = {
            "UCX_TLS": "tcp,self,sm",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": LOCAL,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            **(environment or {}),
        }
        return Process(models, mode=mode, environment=own, inherited=inherited, limit_s=HANGS_S)

    with side() as p, side() as d:
        yield p, d


def built(p: Process, d: Process, options: dict[str, Any], buffer: str = "cpu") -> None:
    """Build both engines at once. D has few blocks."""
    few = {"num_gpu_blocks_override": 13}
    for side, role, own in (p, "kv_producer", {}), (d, "kv_consumer", few):
        connector = {"kv_transfer_config": transfer(role, buffer)}
        side.send(["engine", "full", options | connector | own])
    for side in (p, d):
        assert (error := side.receive().error) is None, error


def prompts() -> dict[str, list[int]]:
    """Prompts of several lengths; two share a prefix."""
    shared = tokens(20, 100)
    return {
        "a": shared + tokens(21, 60),
        "b": shared + tokens(22, 10),
        "c": tokens(23, 60),
        "d": tokens(24, 40),
    }


def prefill(p: Process, given: dict[str, list[int]]) -> dict[str, dict[str, Any]]:
    """Let P compute prompts. Returns what D needs to load them."""
    to_load = {"extra_args": {"kv_transfer_params": {"do_remote_decode": True}}}
    answer = p.served(*(add(name, each, 1, **to_load) for name, each in given.items()), ["run"])
    loads = {name: output.transfer for name, output in answer.outputs.items()}
    assert all(loads.values())
    return {name: each for name, each in loads.items() if each is not None}


def decode(
    d: Process,
    given: dict[str, list[int]],
    loads: dict[str, dict[str, Any]],
    *then: list[Any],
) -> Answer:
    """Let D answer prompts, of which it loads some. None of its actions may raise."""
    actions = []
    for name, prompt in given.items():
        known = {"kv_transfer_params": loads[name]} if name in loads else None
        actions.append(add(name, prompt, 50, extra_args=known))
    return d.served(*actions, *then, ["run"])


def freed(p: Process) -> None:
    """Take steps of P until it has freed what D has read, which D's notification tells it."""
    ends, number = time.monotonic() + HANGS_S, 0
    while True:
        number += 1
        tick = add(f"tick{number}", tokens(27, 5), 4)
        taken = p.served(tick, ["run"], ["call", "tests.engine.memory:held"])
        if taken.results[-1] == 0:
            return
        assert time.monotonic() < ends, "P never freed what D has read"
        time.sleep(0.1 * number)  # P's record has room for no more than some hundred steps


def recorded(p: Process, d: Process) -> list[str]:
    """Write the records of P and D. Returns the files."""
    files = []
    for side in (p, d):
        [[line]] = side.take(["call", "tests.engine.memory:record"]).results
        files.append(str(side.models / line.removeprefix("record: ")))
    return files
