"""Rules are what the reference does, asks for or computes: no switches, and none is named after the
mistake that replaces it."""

import dataclasses
import dis
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.default_rules import REFERENCE

RULES = sorted(field.name for field in dataclasses.fields(REFERENCE))


def reads_an_argument(function: Callable[..., Any]) -> bool:
    """Whether what the function does may depend on any of its arguments. Builtins do."""
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    names = set(inspect.signature(function).parameters)
    used = [
        i.argval for i in dis.get_instructions(code) if i.opcode in (*dis.haslocal, *dis.hasfree)
    ]
    return any(names.intersection(u if isinstance(u, tuple) else (u,)) for u in used)


def is_switch(function: Callable[..., Any]) -> bool:
    """Whether the function only says yes or no, or one of some words, whatever it is asked about.
    A number may be the same for all: nothing is switched by it."""
    if reads_an_argument(function):
        return False
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    answer = function(*(None for kind in kinds if kind is not inspect.Parameter.VAR_POSITIONAL))
    return not kinds or isinstance(answer, bool | str)


@pytest.mark.parametrize("name", RULES)
def test_no_rule_is_a_switch(name: str) -> None:
    assert not is_switch(getattr(REFERENCE, name))


@pytest.mark.parametrize("name", RULES)
def test_no_rule_bears_the_name_of_a_fault(name: str) -> None:
    assert name not in FAULTS


def test_a_switch_is_told_from_a_rule() -> None:
    switches = (
        lambda: True,
        lambda: 1,
        lambda: "passes",
        lambda _held, _needed: True,
        lambda *_: False,
    )
    rules = (pool.fits, pool.touch, all, int, lambda tokens: tokens, lambda _tokens: 0)
    assert all(map(is_switch, switches))
    assert not any(map(is_switch, rules))
