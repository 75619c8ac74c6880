"""This module says whether engines are watched, for `kvproof doctor`. It needs no vLLM."""

import importlib.metadata
import os
from collections.abc import Iterator

from kvproof.watch import switch
from kvproof.watch.run import parts, runs
from kvproof.watch.summary import Summary

GROUP = "vllm.general_plugins"


def lines() -> Iterator[str]:
    """Say what is known here: of the environment, and of each process of a run that is left."""
    yield _environment()
    for folder in runs():
        for part in parts(folder):
            summary = Summary()
            summary.add(part.numbers)
            how = part.lost or f"{part.saved.name} pid {part.saved.pid} has ended"
            yield f"{folder.name}: {how}: {summary.verdict}."


def _environment() -> str:
    mode = switch.mode()
    if not mode:
        return f"{switch.VARIABLE} is not set: an engine that is started here is not watched."
    if mode not in switch.MODES:
        return switch.no_mode(mode)
    if why := switch.left_out():
        return why
    if not any(each.name == switch.NAME for each in importlib.metadata.entry_points(group=GROUP)):
        return (
            f"{switch.VARIABLE}={mode} is set, but kvproof is not installed where vLLM looks for "
            "plugins, so no engine is watched. Use pip install in the environment of vLLM."
        )
    bytes_too = ", with the bytes of its blocks" if os.environ.get(switch.BYTES) == "1" else ""
    return f"{switch.VARIABLE}={mode}: an engine that is started here is watched{bytes_too}."
