"""This module switches the sanitizer on in this process: each scheduler that is built from now on
is watched.

`KVPROOF=record`, `warn` or `raise` does it in every process of vLLM that loads general plugins: the
one that serves, and each engine core. Without `KVPROOF` nothing is imported but this module.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # without typing itself, whose import takes longer than the rest
    from kvproof.watch.watching import Watching

NAME = "kvproof"
"""The name of kvproof among vLLM's plugins."""

VARIABLE = "KVPROOF"
MODES = ("record", "warn", "raise")

BYTES = "KVPROOF_BYTES"
"""With the value 1 beside a mode, the bytes of blocks are judged, too."""

_watching: "Watching | None" = None


def plugin() -> None:
    """Switch the sanitizer on as `KVPROOF` says. This is the entry point of `vllm.general_plugins`.
    A mistake of kvproof is printed; vLLM goes on."""
    chosen = mode()
    if not chosen:
        if _wants_bytes():
            _say(f"{BYTES} does nothing by itself. Use {VARIABLE}=record beside it.")
        return
    if chosen not in MODES:
        _say(no_mode(chosen))
        return
    try:
        on(chosen)
    except Exception as error:
        _say(f"this vLLM cannot be watched ({type(error).__name__}: {error}). Use it without.")


def on(chosen: str) -> "Watching":
    """Watch each scheduler that is built from now on. Returns the object that has what was found on
    all of them."""
    global _watching
    if _watching is None:
        if why := left_out():  # then an engine core in another process is not watched
            _say(why)
        from kvproof.watch.watching import Watching

        _watching = Watching(chosen, _say)
        if _wants_bytes():
            _watching.watch_bytes()
        _watching.install()
    _watching.mode = chosen
    return _watching


def mode() -> str:
    """Return the mode that `KVPROOF` chooses, which may be no mode that exists. It is empty where
    the sanitizer is off."""
    chosen = os.environ.get(VARIABLE, "")
    return "" if chosen in ("0", "off") else chosen


def no_mode(chosen: str) -> str:
    """Say that this is no mode, in two sentences."""
    return f"{VARIABLE}={chosen} is no mode of kvproof. Use one of {', '.join(MODES)}."


def left_out() -> str:
    """Say why nothing is watched although `KVPROOF` is set, in two sentences. The answer is empty
    where that is not so."""
    chosen, plugins = mode(), os.environ.get("VLLM_PLUGINS")
    if not chosen or plugins is None or NAME in plugins.split(","):
        return ""
    with_it = ",".join(filter(None, (plugins, NAME)))
    return (
        f"{VARIABLE}={chosen} is set, but VLLM_PLUGINS={plugins} leaves kvproof out, so no engine "
        f"is watched. Use VLLM_PLUGINS={with_it}."
    )


def _wants_bytes() -> bool:
    value = os.environ.get(BYTES, "")
    if value not in ("", "0", "1"):
        _say(f"{BYTES}={value} has no meaning. Use 1, or leave it away.")
    return value == "1"


def dump() -> list[str]:
    """Write a record of each engine that is watched in this process: its last events. Returns a
    line about each file."""
    if _watching is None:
        if why := left_out():
            _say(why)
        return []
    return _watching.dumps.on_request()


def _say(text: str) -> None:
    """Print a line for the user, on standard error. If nobody reads it, vLLM goes on all the
    same."""
    try:
        print(f"kvproof: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return
