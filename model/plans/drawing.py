"""Draws one value of each parameter of a table."""

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any


def drawn(r: Random, parameters: Mapping[str, tuple[Any, ...]]) -> SimpleNamespace:
    """One of the equally likely values of each parameter, by its name."""
    return SimpleNamespace(**{name: r.choice(values) for name, values in parameters.items()})
