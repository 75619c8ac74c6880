"""A prefill engine P and a decode engine D in two processes, with real NIXL on the loopback."""

import socket
from collections.abc import Iterator
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


def transfer(role: str) -> dict[str, Any]:
    """The kv_transfer_config of one side."""
    return {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_buffer_device": "cpu",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"backends": ["UCX"]},
    }


@contextmanager
def pair(models: Path, mode: str | None) -> Iterator[tuple[Process, Process]]:
    """The processes of P and D."""

    def side() -> Process:
        environment = {
            "UCX_TLS": "tcp,self,sm",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": LOCAL,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        }
        return Process(models, mode=mode, environment=environment, limit_s=HANGS_S)

    with side() as p, side() as d:
        yield p, d


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
    """Let D answer prompts, of which it loads some."""
    actions = []
    for name, prompt in given.items():
        known = {"kv_transfer_params": loads[name]} if name in loads else None
        actions.append(add(name, prompt, 50, extra_args=known))
    return d.take(*actions, *then, ["run"])
