"""The rows of the answer to "why was it not hit?": so many shared tokens, and what became of
them."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

NOT_EXPLAINED: Final = "not explained"

RowKind: TypeAlias = Literal["not explained", "hit", "loaded", "release", "choice"]
"""What became of tokens that earlier requests share: nothing explains why they were not hit; they
were hit; a connector loaded them; or they were not hit for a reason that is a `release` or a
`choice` (see `because.Excuse`)."""

LABELS: tuple[str, ...] = (
    "not, and nothing explains it",
    "were hit",
    "were loaded by ",
    "not, as ",
)
"""How the labels of rows begin, in the order in which rows are told."""


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
        unexplained, hit, loaded, other = LABELS
        if self.kind == NOT_EXPLAINED:
            return unexplained if self.group is None else f"{unexplained} (group {self.group})"
        if self.kind == "hit":
            return hit
        if self.kind == "loaded":
            return f"{loaded}{self.why or 'a connector'}"
        return f"{other}{self.why}"


def sentence(tokens: Mapping[str, int]) -> str:
    """One sentence about rows, whose tokens are given by label: what nothing explains first, then
    what was hit and loaded, then the reasons, the one with most tokens first. Empty where nothing
    is shared."""

    def place(item: tuple[str, int]) -> tuple[int, int, str]:
        label, count = item
        return next(n for n, each in enumerate(LABELS) if label.startswith(each)), -count, label

    told = [f"{count:,} {label}" for label, count in sorted(tokens.items(), key=place) if count]
    shared = f"of {sum(tokens.values()):,} prompt tokens that earlier requests share, "
    return shared + "; ".join(told) if told else ""
