"""The rows of the answer to "why was it not hit?": so many shared tokens, and what became of
them."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

NOT_EXPLAINED: Final = "not explained"

RowKind: TypeAlias = Literal["not explained", "hit", "loaded", "release", "choice"]
"""What became of tokens that earlier requests share: nothing explains why they were not hit; they
were hit; a connector loaded them; or they were not hit for a reason that is a `release` or a
`choice` (see `because.Excuse`)."""

KINDS: tuple[str, ...] = get_args(RowKind)
"""The kinds of rows, in the order in which they are told."""

UNEXPLAINED, HIT, LOADED = "and nothing explains it", "were hit", "were loaded by "
"""What labels of rows end or begin with."""

ROWS_MAX = 12
"""The largest number of rows that a sentence tells one by one."""


class HitRow(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """So many `tokens` of prompts, which earlier requests of the engine share. `why` is the reason
    why they were not hit, or the connector that loaded them, and `group` the index of the cache
    group that is the reason."""

    kind: RowKind
    why: str = ""
    tokens: int = 0
    group: int | None = None

    @property
    def label(self) -> str:
        """The row in words, without its number. Rows with one label are one row."""
        where = "not" if self.group is None else f"not in group {self.group}"
        if self.kind == NOT_EXPLAINED:
            return f"{where}, {UNEXPLAINED}"
        if self.kind == "hit":
            return HIT
        if self.kind == "loaded":
            return f"{LOADED}{self.why or 'a connector'}"
        today = " (vLLM does so today)" if self.kind == "release" else ""
        return f"{where}, as {self.why}{today}"


def sentence(tokens: Mapping[str, int]) -> str:
    """One sentence about rows, whose tokens are given by label: what nothing explains first, then
    what was hit and loaded, then the reasons, the one with most tokens first. Empty where nothing
    is shared."""

    def place(item: tuple[str, int]) -> tuple[bool, bool, bool, int, str]:
        label, count = item
        served = label == HIT, label.startswith(LOADED)
        return not label.endswith(UNEXPLAINED), not served[0], not served[1], -count, label

    rows = [item for item in sorted(tokens.items(), key=place) if item[1]]
    told = [f"{count:,} {label}" for label, count in rows[:ROWS_MAX]]
    if len(rows) > ROWS_MAX:
        left = sum(count for _, count in rows[ROWS_MAX:])
        told.append(f"{left:,} not, for {len(rows) - ROWS_MAX} more reasons")
    shared = f"of {sum(tokens.values()):,} prompt tokens that earlier requests share, "
    return shared + "; ".join(told) if told else ""
