"""A query to Z3 that the user can interrupt.

Z3 has a handler of its own for Ctrl-C, which would make the interruption an answer, "unknown". It
is switched off for each solver. While Z3 runs, Python runs no handler, so another thread interrupts
the context of the query (see `model/interruption.py`), and then KeyboardInterrupt is raised here.
"""

from typing import Any

import z3

from kvproof.model import interruption

OWN_HANDLER = "ctrl_c"


def checked(solver: z3.Solver, *assumptions: Any) -> str:
    """The answer of a solver: sat, unsat or unknown. Raises KeyboardInterrupt."""
    solver.set(OWN_HANDLER, False)
    with interruption.stopping(solver.ctx.interrupt):
        return str(solver.check(*assumptions))
