"""Z3 runs the same text as Python: each term evaluates to what Python computes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model.arithmetic import counts

small = st.integers(0, 24)
size = st.integers(1, 9)

ARGUMENTS: dict[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]] = {
    counts.blocks_for_tokens: (small, size),
    counts.full_blocks: (small, size),
    counts.tokens_skipped_by_window: (small, size),
    counts.tokens_skipped_by_state: (small,),
    counts.window_blocks_for_hit: (size, size),
    counts.serves_a_hit: (small, size, size, size),
    counts.needed_at: (small, size, size, small),
    counts.is_retained: (small, size, size, size, small, size, small),
    counts.longest_hit_tokens: (small, size),
    counts.tokens_to_cache: (small, small),
    counts.cacheable_tokens: (small, size),
    counts.hashed_tokens: (small, size, small),
    counts.settled_tokens: (small, small),
    counts.computed_after_drafts: (small, small, small),
    counts.tokens_loaded_by_decode: (small, small),
    counts.prompt_after_truncation: (small, small, st.booleans()),
    counts.blocks_counted_after_hit: (small, small),
    counts.align_chunk: (small, small, small, small, size, size, small),
    counts.tail_chunk: (small, small, small, small),
    counts.copies_of_hit: (small, size),
    counts.attention_blocks_predicted: (small, size, small, small),
    counts.state_blocks_predicted: (small, size, small),
    counts.trim: (small, small, small, small, st.booleans()),
    counts.logical_block: (small, size),
    counts.state_slots_moved: (small,),
    counts.held_tokens_loaded: (small, small, st.booleans()),
    counts.output_tokens: (small, st.booleans()),
    counts.attention_blocks_offered: (small, size),
    counts.state_is_used: (small, small),
    counts.blocks_from_queue: (small, small),
    counts.tokens_offered: (small, small, small),
    counts.resumed_at: (small, small),
    counts.needed_from_load: (small, small),
    counts.window_blocks_offered: (size, size),
}


def by_z3(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """What the function's Z3 term evaluates to with these values for its variables."""
    context = z3.Context()  # a main context, once made, would stay: see proofs/solve
    pairs = [
        (z3.Bool(f"v{i}", context), z3.BoolVal(value, context))
        if isinstance(value, bool)
        else (z3.Int(f"v{i}", context), z3.IntVal(value, context))
        for i, value in enumerate(values)
    ]
    term = function(*(variable for variable, _ in pairs))
    terms = term if isinstance(term, tuple) else (term,)
    parts = tuple(z3.simplify(z3.substitute(t, *pairs)) for t in terms)
    plain = tuple(p.as_long() if z3.is_int(p) else z3.is_true(p) for p in parts)
    return plain if isinstance(term, tuple) else plain[0]


@pytest.mark.parametrize("function", ARGUMENTS, ids=lambda f: f.__name__)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_z3_and_python_compute_the_same(function: Callable[..., Any], data: st.DataObject) -> None:
    values = data.draw(st.tuples(*ARGUMENTS[function]))
    if function in (counts.serves_a_hit, counts.is_retained):
        values = (*values[:3], math.lcm(values[2], values[3]), *values[4:])
    if function is counts.is_retained:
        values = (*values[:4], values[3] * values[4], *values[5:])
    assert by_z3(function, values) == function(*values)


def test_every_function_is_compared_with_z3() -> None:
    here = [f for f in vars(counts).values() if getattr(f, "__module__", "") == counts.__name__]
    assert {f.__name__ for f in here} == {f.__name__ for f in ARGUMENTS}
