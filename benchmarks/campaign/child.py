"""Work in a child process that ends when it has its result: Atheris never returns."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

Done = Callable[[Any], NoReturn]
"""Gives the result to the parent, as JSON, and ends the child."""


def in_child(work: Callable[[Done], object]) -> Any:
    """The result of this work. What it prints is lost.

    Raises RuntimeError with what the child printed, if it ends without a result.
    """
    read, write = os.pipe()
    sys.stdout.flush()
    if os.fork() == 0:

        def done(result: Any) -> NoReturn:
            os.write(write, json.dumps(result).encode())
            os._exit(0)

        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            work(done)
        except BaseException:
            done({"error": traceback.format_exc()})
        os._exit(1)
    os.close(write)
    with os.fdopen(read) as pipe:
        printed = pipe.read()
    os.wait()
    result = json.loads(printed or '{"error": "nothing"}')
    if isinstance(result, dict) and "error" in result:
        error = result["error"]
        raise RuntimeError(f"A search ended without a result. Read what it printed: {error}")
    return result
