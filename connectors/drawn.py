"""Plans that Hypothesis draws: engines of every kind that a connector takes, and traffic in which
prompts share beginnings, requests are aborted, and the engine's own cache is emptied."""

from collections.abc import Sequence

from hypothesis import strategies as st

from kvproof.connectors.plan import (
    PROMPT_TOKENS_MAX,
    Abort,
    Action,
    Copies,
    Drain,
    Output,
    Plan,
    Reset,
    Step,
    Submit,
)
from kvproof.model.config import Engine, Group

ALONE: tuple[tuple[Group, ...], ...] = ((Group("full", 4),), (Group("full", 2),))
"""Cache groups for a connector that supports one group."""

HYBRID: tuple[tuple[Group, ...], ...] = (
    *ALONE,
    (Group("full", 4), Group("window", 4, window=8)),
    (Group("full", 4), Group("window", 4, window=5)),
)
"""Cache groups for a connector that supports several (`SupportsHMA`)."""

TOGETHER = ((0,), (0, 1), (0, 3), (2, 3))
"""The families of prompts in one episode."""

TURNS_MAX = 10


@st.composite
def plans(draw: st.DrawFn, groups: Sequence[tuple[Group, ...]], overlaps: bool) -> Plan:
    """Plans for engines with these groups, and with async scheduling if `overlaps`."""
    chosen = draw(st.sampled_from(groups))
    size = chosen[0].block_size
    room = 1 + len(chosen) * -(-(PROMPT_TOKENS_MAX + 4) // size)
    engine = Engine(
        "E",
        chosen,
        num_blocks=room + draw(st.integers(0, 4)),
        chunk_tokens=draw(st.sampled_from((size + 1, 4 * size, 64))),
        steps_in_flight=2 if overlaps and draw(st.booleans()) else 1,
    )
    # Prompts end at a block boundary, or one token beside it, more often than elsewhere.
    boundary = st.integers(1, PROMPT_TOKENS_MAX // size).map(lambda blocks: blocks * size)
    tokens = st.one_of(
        boundary,
        st.tuples(boundary, st.sampled_from((-1, 1))).map(sum),
        st.integers(1, PROMPT_TOKENS_MAX),
    ).filter(lambda count: 1 <= count <= PROMPT_TOKENS_MAX)
    family = st.sampled_from(draw(st.sampled_from(TOGETHER)))
    # Few prompts, so that they come again, and longer ones after shorter ones.
    prompts = draw(st.lists(st.tuples(family, tokens), min_size=1, max_size=4, unique=True))
    submit: st.SearchStrategy[Action] = st.builds(
        lambda prompt, answer: Submit(prompt[0], prompt[1], answer),
        st.sampled_from(prompts),
        st.integers(1, 4),
    )
    step: st.SearchStrategy[Action] = st.builds(Step, st.integers(1, 3))
    others = [st.just(Reset()), st.builds(Abort, st.integers(0, 3))]
    if engine.overlaps:
        others.append(st.just(Output()))
    action = st.one_of(submit, submit, step, step, *others)
    again = st.just([Drain(), Reset()])
    turns = st.lists(st.one_of(action.map(lambda each: [each]), again), max_size=TURNS_MAX)
    # Three lists in a row are longer than one, and all of them can be shrunk to nothing.
    actions = [each for _ in range(3) for part in draw(turns) for each in part]
    recompute = draw(st.booleans())
    copies = Copies(draw(st.booleans()), draw(st.integers(0, 3)))
    return Plan(engine, tuple(actions), "recompute" if recompute else "fail", copies)
