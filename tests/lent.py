"""The environment in which the tests were started, before the vLLM under test was lent.

Where that vLLM is built for a GPU, the tests run a mirror of it that takes itself for a CPU build.
What runs on the GPU starts its processes in this environment.
"""

BEFORE: dict[str, str] = {}
"""Filled by `tests/conftest.py`."""
