"""Other programs that kvproof starts, such as pip: they end where kvproof ends."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kvproof.model import interruption

PARENT = "KVPROOF_PARENT"
"""The environment variable with the process id of kvproof."""

PARENT_LOOK_S = 0.5
"""The time between two checks that the parent is alive, in seconds."""


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, and keep its output. An interruption of kvproof ends the program
    and all that it started, and raises KeyboardInterrupt. Raises subprocess.TimeoutExpired."""
    started: list[subprocess.Popen[str]] = []

    def end() -> None:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    try:
        with interruption.held():  # else a signal could come when it runs and is not known here
            process = subprocess.Popen(
                command,
                env={**(os.environ if env is None else env), PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="backslashreplace",
                start_new_session=True,  # Ctrl-C of the terminal reaches kvproof, which ends it
            )
            started.append(process)
        out, err = process.communicate(timeout=timeout_s)
    except BaseException:
        end()
        for process in started:
            process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_with_parent() -> None:
    """End this program, which `run` has started, and all that it started, if kvproof is killed."""
    parent, starter = os.getppid(), os.environ.get(PARENT, "")
    if starter != str(parent):
        if starter.isdecimal() and _is_gone(int(starter)):  # it was killed already
            _end()
        return

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_LOOK_S)
        _end()

    threading.Thread(target=look, daemon=True).start()


def _is_gone(process: int) -> bool:
    with suppress(OSError, OverflowError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
    return False


def _end() -> None:
    with suppress(ProcessLookupError):  # where it leads no group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)
