"""Z3 runs the same text as Python: each term evaluates to what Python computes."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_shared_arithmetic import FUNCTIONS, PLAIN


def by_z3(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """What the function's Z3 term evaluates to with these values for its variables. What a drafter
    gives up chooses the term: it gets its value itself."""
    chosen = [name.startswith("eagle_drop") for name in inspect.signature(function).parameters]
    context = z3.Context()  # a main context, once made, would stay: see proofs/solve
    pairs = [
        (z3.Bool(f"v{i}", context), z3.BoolVal(value, context))
        if isinstance(value, bool)
        else (z3.Int(f"v{i}", context), z3.IntVal(value, context))
        for i, value in enumerate(values)
    ]
    given = [
        value if fixed else variable
        for value, fixed, (variable, _) in zip(values, chosen, pairs, strict=False)
    ]
    term = function(*given)
    terms = term if isinstance(term, tuple) else (term,)
    parts = tuple(z3.simplify(z3.substitute(t, *pairs)) for t in terms)
    plain = tuple(p.as_long() if z3.is_int(p) else z3.is_true(p) for p in parts)
    return plain if isinstance(term, tuple) else plain[0]


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_z3_and_python_compute_the_same(name: str, data: st.DataObject) -> None:
    plain = PLAIN[name]
    numbers = (st.sampled_from(list(some)) for some in plain.numbers)
    values = plain.given(*data.draw(st.tuples(*numbers)))
    assert by_z3(FUNCTIONS[name], values) == FUNCTIONS[name](*values)
