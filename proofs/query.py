"""A query to Z3 that the user can interrupt.

Z3 has a handler of its own for Ctrl-C, which would make the interruption an answer, "unknown". It
is switched off for each solver. While Z3 runs, Python runs no handler in the thread that called it:
so the query runs in a thread of its own, and the main thread waits for it.
"""

import threading
from typing import Any

import z3

from kvproof.model import interruption

OWN_HANDLER = "ctrl_c"

INTERRUPTED_EVERY_S = 0.05
"""The time between two interruptions of a query, in seconds: it may not have begun at the first."""


def checked(solver: z3.Solver, *assumptions: Any) -> str:
    """The answer of a solver: sat, unsat or unknown. Raises KeyboardInterrupt."""
    solver.set(OWN_HANDLER, False)
    answers: list[str] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(str(solver.check(*assumptions)))
        except BaseException as error:
            failed.append(error)

    query = threading.Thread(target=ask, daemon=True)
    query.start()
    try:
        query.join()
    except KeyboardInterrupt:
        with interruption.held():
            while query.is_alive():
                solver.ctx.interrupt()
                query.join(INTERRUPTED_EVERY_S)
        raise
    if failed:
        raise failed[0]
    return answers[0]
