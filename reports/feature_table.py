"""README's table of features: the supported features, their options, and the features that they
exclude."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.features.registry import FEATURES, exclusions
from kvproof.model.errors import UsageError

BEGIN = "<!-- features: begin; pytest --rewrite makes this table -->"
END = "<!-- features: end -->"
HEAD = ("| feature | option | needs | not with |", "|---|---|---|---|")


def feature_table() -> str:
    """The table in Markdown: one line for each feature, section by section."""
    return "\n".join([*HEAD, *map(_line, FEATURES.values())])


def with_feature_table(text: str) -> str:
    """The text with the table between its markers. Raises UsageError if the markers are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"The text has no place for the table. Use {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{feature_table()}\n{END}{after}"


def _line(feature: Feature[Any]) -> str:
    needs = ", ".join(FEATURES[f].name for f in (*feature.needs, *feature.idle_without))
    apart = [*_excluded(feature.id), *(limit.words for limit in feature.limits if limit.words)]
    return f"| {feature.words} | {feature.options} | {needs} | {'; '.join(apart)} |"


def _excluded(feature: str) -> Iterator[str]:
    """The features that a feature cannot be combined with, by its own exclusions and those of
    others."""
    for together, exclusion in exclusions():
        if feature in together:
            first, *rest = (f.name for f in FEATURES.values() if f.id in together - {feature})
            yield " with ".join([first, *filter(None, [" and ".join(rest)])]) + _where(exclusion)


def _where(exclusion: Exclusion[Any]) -> str:
    return f" ({exclusion.only})" if exclusion.only else ""
