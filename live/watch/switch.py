"""Switches the sanitizer on in this process: each scheduler that is built from now on is watched.

`KVPROOF=record`, `warn` or `raise` does it in every process of vLLM that loads general plugins: the
one that serves, and each engine core. Without `KVPROOF` nothing is imported but this module.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # without typing itself, whose import takes longer than the rest
    from kvproof.live.watch.watching import Watching

NAME = "kvproof"
"""The name of kvproof among vLLM's plugins."""

VARIABLE = "KVPROOF"
MODES = ("record", "warn", "raise")

BYTES = "KVPROOF_BYTES"
"""With the value 1 beside a mode, the bytes of blocks are judged, too."""

_watching: "Watching | None" = None


def plugin() -> None:
    """The entry point of `vllm.general_plugins`. A mistake of kvproof is printed; vLLM goes on."""
    mode = _mode()
    if not mode:
        if _wants_bytes():
            _say(f"{BYTES} does nothing by itself. Use {VARIABLE}=record beside it.")
        return
    if mode not in MODES:
        _say(f"{VARIABLE}={mode} is no mode of kvproof. Use one of {', '.join(MODES)}.")
        return
    try:
        on(mode)
    except Exception as error:
        _say(f"this vLLM cannot be watched ({type(error).__name__}: {error}). Use it without.")


def on(mode: str) -> "Watching":
    """Watch each scheduler that is built from now on. Returns what is known of all of them."""
    global _watching
    if _watching is None:
        from kvproof.live.watch.watching import Watching

        _watching = Watching(mode, _say)
        if _wants_bytes():
            _watching.watch_bytes()
        _watching.install()
    _watching.mode = mode
    return _watching


def _mode() -> str:
    mode = os.environ.get(VARIABLE, "")
    return "" if mode in ("0", "off") else mode


def left_out() -> str:
    """Why nothing is watched although `KVPROOF` is set, in two sentences. Empty where that is not
    so."""
    mode, plugins = _mode(), os.environ.get("VLLM_PLUGINS")
    if not mode or plugins is None or NAME in plugins.split(","):
        return ""
    with_it = ",".join(filter(None, (plugins, NAME)))
    return (
        f"{VARIABLE}={mode} is set, but VLLM_PLUGINS={plugins} leaves kvproof out, so no engine is "
        f"watched. Use VLLM_PLUGINS={with_it}."
    )


def _wants_bytes() -> bool:
    value = os.environ.get(BYTES, "")
    if value not in ("", "0", "1"):
        _say(f"{BYTES}={value} has no meaning. Use 1, or leave it away.")
    return value == "1"


def dump() -> list[str]:
    """Write a record of each engine that is watched in this process: its last events. Returns a
    line about each file."""
    return [] if _watching is None else _watching.dumps.on_request()


def _say(text: str) -> None:
    """Print a line for the user, on standard error. That nobody reads it does not concern vLLM."""
    try:
        print(f"kvproof: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return
