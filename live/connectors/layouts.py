"""The cache groups with which connectors are driven: plain ones, those with one odd value of a
table of parameters, and rows in which nearly each two values come together (a covering array). The
config of an engine (`EngineConfig`) refuses what kvproof does not model, and `_is_odd` what vLLM
does."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

from msgspec.structs import replace

from kvproof.model.config import Group
from kvproof.model.errors import NotValid
from kvproof.model.plans.connector import ConnectorPlan, bare

Parameters = Mapping[str, Sequence[Any]]
"""The values of each parameter, the plain one first."""

Row = Mapping[str, Any]
"""A value of each parameter."""

ALONE: Parameters = {
    "block_tokens": (4, 2, 8),
    "kernel_blocks": (1, 2),
    "latent": (False, True),
    "uneven": (False, True),
    "prefix_caching": (True, False),
    "shared_layer": (False, True),
}
"""The parameters of one group of full attention."""

DRAFTER: Parameters = {"drafter": ("", "first")}
"""The parameter that one group has besides where the connector takes several."""

BESIDE: Parameters = {
    "beside": (("window",), ("mamba",), ("other", "window"), ("mamba", "mamba"), ("chunks",)),
    "others_tokens": ("equal", "narrower", "wider"),
    "window_quarters": (8, 4, 5, 6, 9),
    "drafter": ("", "first", "last"),
    "retention": (None, 0, 8),
    "match_unit": (0, 2),
    "every_state": (False, True),
    "full_is_last": (False, True),
}
"""The parameters that there are more of where other groups are beside it: their kinds, how many
tokens their blocks have, how many quarters of a block a window has, which group has layers of a
drafter, and whether full attention is the last group."""

ROWS = 40
"""So many rows have nearly all pairs of values that can be together."""

OTHER_WINDOW_TOKENS = 8
"""The tokens of a second window, whose blocks are those of full attention."""


@functools.cache
def layouts(several: bool, pair: bool = False) -> tuple[ConnectorPlan, ...]:
    """Plans without requests, for a connector that takes one cache group, or `several`
    (`SupportsHMA`). Those of a `pair` of engines have one odd value beside their kinds of groups:
    with more at once, several known findings are at work in a plan, and none of them alone explains
    what breaks."""
    rows: list[Row] = []
    for table in [{**ALONE, **DRAFTER}, {**BESIDE, **ALONE}] if several else [ALONE]:
        plain = [_plain(table, kinds) for kinds in table.get("beside", [()])]
        rows += plain
        rows += [odd for row in (plain if pair else plain[:1]) for odd in _with_one_odd(row, table)]
        rows += [] if pair else _covering(table)
    return tuple(dict.fromkeys(plan for row in rows if (plan := _plan(row)) is not None))


def _plain(parameters: Parameters, kinds: tuple[str, ...]) -> Row:
    return {name: values[0] for name, values in parameters.items()} | {"beside": kinds}


def _with_one_odd(row: Row, parameters: Parameters) -> Iterator[Row]:
    """The rows in which one parameter has another value, but for the kinds of groups."""
    for name, values in parameters.items():
        if name != "beside":
            yield from ({**row, name: value} for value in values[1:])


def _covering(parameters: Parameters) -> Iterator[Row]:
    """Rows in which the values of parameters come together in pairs. Each begins at random, and
    then each parameter takes the value that is in most pairs that no earlier row has."""
    random, seen = Random(0), set[object]()
    # vLLM 0.32.0 refuses it: its rows would cover nothing.
    parameters = {name: values for name, values in parameters.items() if name != "every_state"}
    for _ in range(ROWS):
        row = _drawn(random, parameters)
        while _plan(row) is None:
            row = _drawn(random, parameters)
        for name in random.sample([*parameters], len(parameters)):
            others = ({**row, name: value} for value in parameters[name])
            fitting = [other for other in others if _plan(other) is not None]
            row = max(fitting, key=lambda each: len(_pairs(each) - seen))
        seen |= _pairs(row)
        yield row


def _drawn(random: Random, parameters: Parameters) -> Row:
    return {name: random.choice(values) for name, values in parameters.items()}


def _pairs(row: Row) -> set[object]:
    return {*combinations(row.items(), 2)}


def _plan(row: Row) -> ConnectorPlan | None:
    """The plan of a row; None where its values cannot be together."""
    tokens: int = row["block_tokens"]
    kinds: tuple[str, ...] = row.get("beside", ())
    unequal = {"narrower": tokens // 2, "wider": 2 * tokens}
    others_tokens = unequal.get(row.get("others_tokens", ""), tokens)
    window = others_tokens * row.get("window_quarters", 0) // 4
    drafter = row.get("drafter", "")
    beside = {
        "window": partial(Group, "window", others_tokens, window=window),
        "chunks": partial(Group, "window", others_tokens, window=window),
        "other": partial(Group, "window", tokens, window=OTHER_WINDOW_TOKENS),
        "mamba": partial(Group, "mamba", others_tokens),
    }
    if _is_odd(row, kinds, tokens, others_tokens):
        return None
    try:
        groups = [beside[kind]() for kind in kinds]
        if drafter == "last":
            groups[-1] = replace(groups[-1], eagle=True)
        full = Group("full", tokens, eagle=drafter == "first")
        return bare(
            *([*groups, full] if row.get("full_is_last") else [full, *groups]),
            local=kinds == ("chunks",),
            **{name: row[name] for name in OF_PLAN if name in row},
        )
    except NotValid:
        return None


def _is_odd(row: Row, kinds: Sequence[str], tokens: int, others_tokens: int) -> bool:
    """Whether vLLM refuses these values together, or two of them say the same."""
    unequal = tokens != others_tokens
    shared = row["uneven"] or row.get("drafter") or len(kinds) > 1
    return (
        not 2 <= others_tokens <= 8  # a window of wider blocks has room for any prompt
        # Kernels have blocks of their own where no two groups share the bytes of a block.
        or (row["kernel_blocks"] > 1 and (unequal or tokens < 4 or shared))
        or (row.get("every_state", False) and ("mamba" not in kinds or unequal))
        or (kinds == ("chunks",) and (row["retention"] is not None or bool(row["drafter"])))
    )


OF_PLAN = (
    "kernel_blocks",
    "latent",
    "uneven",
    "prefix_caching",
    "shared_layer",
    "retention",
    "match_unit",
    "every_state",
)
"""The parameters that a plan has under the same name."""
