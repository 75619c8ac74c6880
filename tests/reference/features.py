"""The features that kvproof drives: their options, what they need, and what they exclude."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.features.registry import FEATURES, exclusions
from tests.reference import markdown

HEAD = ("feature", "option", "needs", "not with")


def table() -> str:
    """One line for each feature, section by section."""
    return markdown.table(HEAD, map(_cells, FEATURES.values()))


def _cells(feature: Feature[Any]) -> tuple[str, ...]:
    needs = ", ".join(FEATURES[f].name for f in (*feature.needs, *feature.idle_without))
    apart = [*_excluded(feature.id), *(limit.words for limit in feature.limits if limit.words)]
    return feature.words, feature.options, needs, "; ".join(apart)


def _excluded(feature: str) -> Iterator[str]:
    """The features that a feature cannot be combined with, by its own exclusions and those of
    others."""
    for together, exclusion in exclusions():
        if feature in together:
            first, *rest = (f.name for f in FEATURES.values() if f.id in together - {feature})
            yield " with ".join([first, *filter(None, [" and ".join(rest)])]) + _where(exclusion)


def _where(exclusion: Exclusion[Any]) -> str:
    return f" ({exclusion.only})" if exclusion.only else ""
