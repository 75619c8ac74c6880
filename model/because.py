"""Why something does not hold: facts that contradict each other, and what they are about."""

from typing import NamedTuple, TypeAlias

Reasons: TypeAlias = tuple[str, ...]
"""Facts that contradict each other, in the order in which a reader should hear them."""


class About(NamedTuple):
    """What a finding is about, as far as it is about one thing: names of an engine and a request,
    the number of a cache group, the id of a block, a cached prefix."""

    engine: str = ""
    request: str = ""
    group: int | None = None
    block: int | None = None
    prefix: str = ""

    def said(self) -> dict[str, str | int]:
        """What it says, by name."""
        return {name: value for name, value in self._asdict().items() if value not in ("", None)}


class Because(NamedTuple):
    """Reasons, and what they are about."""

    reasons: Reasons
    about: About = About()


def because(*reasons: str, **about: object) -> Because:
    """Reasons in order, and by name what they are about (see `About`)."""
    return Because(reasons, About(**about))  # type: ignore[arg-type]
