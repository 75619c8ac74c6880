"""The environment in which the tests were started, before the vLLM under test was lent.

Where that vLLM is built for a GPU, the tests run a mirror of it that takes itself for a CPU build.
What runs on the GPU starts its processes in this environment.
"""

import json
import os

NAME = "KVPROOF_TESTS_BEFORE"
"""The variable from which the workers of pytest-xdist, which start after the vLLM was lent, read
the environment before."""

BEFORE: dict[str, str] = {}
"""Filled by `tests/conftest.py`."""


def note() -> None:
    """Keep the environment as it is now, if it was not kept by the process that started this."""
    BEFORE.update(json.loads(os.environ.get(NAME) or "null") or os.environ)
    os.environ[NAME] = json.dumps(BEFORE)
