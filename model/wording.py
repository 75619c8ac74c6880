"""The sentences of findings: the one place that reads the words of a reason.

A gap is `{name}`, or `{name:how}`:

    {prefix:quoted}     in quotes: 'abc'
    {slots:listed}      what slots hold: 'a', 'ab', and _ for a slot that was never written
    {requests:names}    a list as names: r0, r1
    {counts:either}     a list of which each is right: 3 or 4
    {moves:all}         a list of which each is meant: a and b
    {counts:counts}     pairs of a name and a number: tokens 3, blocks 1
    {held:or nothing}   these words where the value is empty
"""

import re
import string
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kvproof.model.because import NOTHING, About, Reason, Reasons, as_data
from kvproof.model.errors import UsageError


def sentences(reasons: Reasons, about: About = NOTHING) -> tuple[str, ...]:
    """The reasons in words."""
    return tuple(worded(reason, about) for reason in reasons)


def sentence(reasons: Reasons, about: About = NOTHING) -> str:
    """The reasons as one sentence: what must be so, yet what is."""
    *before, last = sentences(reasons, about)
    return ", yet ".join(("; ".join(before) or "so", last))


def worded(reason: Reason, about: About) -> str:
    """One reason in words. The `message` of an exception is kept as it is."""
    known = {n: as_data(v) for n, v in msgspec.structs.asdict(about).items()} | reason.facts
    words = _Gaps(about).vformat(reason.says, (), known)
    return words if "message" in reason.facts else ONE.sub(_one, words)


def literal(text: str) -> str:
    """Make a text the words of a reason: it has no gaps, and its braces stay."""
    return text.replace("{", "{{").replace("}", "}}")


def quoted(prefix: str | None) -> str:
    """A prefix in a reason: `'abc'`. A dot in it is no full stop, and the text says so."""
    dot = " (each dot is a sampled token)" if prefix and "." in prefix else ""
    return f"'{prefix or ''}'{dot}"


def listed(prefixes: Iterable[str]) -> str:
    """What slots hold, in a reason: `'a', 'ab'`, and `_` for a slot that was never written."""
    return ", ".join(f"'{prefix}'" if prefix else "_" for prefix in prefixes)


ONE = re.compile(
    r"(?<![\w.-])1 ((?:\w+ )?(?:block|entr|prompt|request|slot|token))(s|ies)( were| are)?\b"
)
"""A pattern that finds a count of one with its noun in the plural."""

VERB = {None: "", " were": " was", " are": " is"}


def _one(plural: re.Match[str]) -> str:
    noun, ending, verb = plural.groups()
    return f"1 {noun}{'y' * (ending == 'ies')}{VERB[verb]}"


class _Gaps(string.Formatter):
    """A formatter that fills the gaps of a sentence."""

    def __init__(self, about: About) -> None:
        self.about = about

    def get_field(self, field_name: str, _args: Any, known: Mapping[str, Any]) -> tuple[Any, str]:
        """The value of a name. There are no paths to parts of it. Raises UsageError where no fact
        has this name."""
        if field_name not in known:
            raise UsageError(
                f"A reason has the gap {{{field_name}}}, and no value for it. "
                f"Use {', '.join(sorted(known))}."
            )
        return known[field_name], field_name

    def format_field(self, value: Any, how: str) -> str:
        """Format a value in words, as `how` says."""
        if isinstance(value, Reason):
            return worded(value, self.about)
        if how == "quoted":
            return quoted(value)
        if how == "listed":
            return listed(value)
        if how == "names":
            return ", ".join(map(str, value)) or "nobody"
        if how == "counts":
            return ", ".join(f"{name} {count}" for name, count in value) or "nothing"
        if how == "all":
            return " and ".join(map(str, value)) or "nothing"
        if how == "either":
            return " or ".join(map(str, value))
        if how.startswith("or ") and not value:
            return how.removeprefix("or ")
        return str(_listed(value))


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if isinstance(value, tuple) else value
