"""The features that kvproof drives: their options, what they need, and what they exclude."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.features.registry import FEATURES, exclusions
from tests.reference import markdown

HEAD = ("feature", "option", "needs", "not with", "on live vLLM only")


def table() -> str:
    """One line for each feature, section by section."""
    return markdown.table(HEAD, map(_cells, FEATURES.values()))


def _cells(feature: Feature[Any]) -> tuple[str, ...]:
    needs = ", ".join(FEATURES[f].name for f in (*feature.needs, *feature.idle_without))
    return feature.words, feature.options, needs, _apart(feature, False), _apart(feature, True)


def _apart(feature: Feature[Any], live: bool) -> str:
    """What a feature is not combined with, anywhere or in the model only (`live`)."""
    limits = (limit.words for limit in feature.limits if limit.words and not live)
    return "; ".join([*_excluded(feature.id, live), *limits])


def _excluded(feature: str, live: bool) -> Iterator[str]:
    """The features that a feature cannot be combined with, by its own exclusions and those of
    others."""
    for together, exclusion in exclusions():
        if feature in together and exclusion.live == live:
            first, *rest = (f.name for f in FEATURES.values() if f.id in together - {feature})
            yield " with ".join([first, *filter(None, [" and ".join(rest)])]) + _where(exclusion)


def _where(exclusion: Exclusion) -> str:
    return f" ({exclusion.only})" if exclusion.only else ""
