"""What the table of features refuses: combinations of features, and what one needs or limits."""

import functools
from collections.abc import Iterator
from typing import Any

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature, Refusal
from kvproof.model.config.features.table import SECTIONS
from kvproof.model.errors import NotValid, UsageError

FEATURES: dict[str, Feature[Any]] = {f.id: f for of in SECTIONS.values() for f in of}
"""The features by id, section by section."""


def section_of(feature: Feature[Any]) -> str:
    """The section of the table that a feature is in."""
    return next(name for name, features in SECTIONS.items() if feature in features)


def used_by(part: EngineConfig | Cluster) -> set[str]:
    """The ids of all features that an engine uses, or a cluster or one of its engines."""
    used = {f.id for f in FEATURES.values() if isinstance(part, f.of) and f.used(part)}
    return used.union(*map(used_by, part.engines)) if isinstance(part, Cluster) else used


@functools.cache
def exclusions() -> tuple[tuple[frozenset[str], Exclusion], ...]:
    """All exclusions, each with the ids of the features that do not go together."""
    return tuple(
        (frozenset((feature.id, *exclusion.beside)), exclusion)
        for feature in FEATURES.values()
        for exclusion in feature.exclusions
    )


def refuse(part: EngineConfig | Cluster) -> None:
    """Raise NotValid where the table refuses an engine or a cluster. Each engine is checked when
    it is created."""
    for refusal in _refusals(part):
        raise NotValid(str(refusal))


def modelled(cluster: Cluster) -> bool:
    """Whether the model can run a cluster; live vLLM can be driven with all of them."""
    return next(_unmodelled(cluster), None) is None


def refuse_unmodelled(cluster: Cluster) -> None:
    """Raise UsageError where only live vLLM can be driven with a cluster."""
    for refusal in _unmodelled(cluster):
        raise UsageError(f"{refusal.wrong}. Use {refusal.instead}, or --machine live.")


def _unmodelled(cluster: Cluster) -> Iterator[Refusal]:
    parts: tuple[EngineConfig | Cluster, ...] = (*cluster.engines, cluster)
    for part in parts:
        used = used_by(part)
        for feature in FEATURES.values():
            if feature.id in used:
                yield from _combined(part, feature, used, live=True)


def _refusals(part: EngineConfig | Cluster) -> Iterator[Refusal]:
    used = used_by(part)
    for feature in FEATURES.values():
        if feature.id in used:
            yield from _lacking(part, feature, used)
            yield from _combined(part, feature, used)
        for limit in feature.limits:
            refusal = limit.check(part) if isinstance(part, limit.of) else None
            if refusal is not None:
                yield refusal
    if isinstance(part, Cluster):
        yield from _of_jobs(part, used)


def _lacking(
    part: EngineConfig | Cluster, feature: Feature[Any], used: set[str]
) -> Iterator[Refusal]:
    if isinstance(part, feature.of):
        for need in (FEATURES[need] for need in feature.needs if need not in used):
            wrong = f"{_called(part)} has {feature.name} without {need.name}"
            yield Refusal(wrong, f"{need.on}, or {feature.off}")


def _combined(
    part: EngineConfig | Cluster, feature: Feature[Any], used: set[str], live: bool = False
) -> Iterator[Refusal]:
    for exclusion in (e for e in feature.exclusions if e.live == live):
        combined = [feature, *(FEATURES[other] for other in exclusion.beside)]
        of = Cluster if any(each.of is Cluster for each in combined) else EngineConfig
        if not isinstance(part, of) or not used.issuperset(exclusion.beside):
            continue
        if exclusion.where is None or exclusion.where(part):
            names, off = _listed("and", [f.name for f in combined]), [f.off for f in combined]
            wrong = f"{_called(part)} combines {names}, {exclusion.because}"
            yield Refusal(wrong, exclusion.instead or _listed("or", off))


def _of_jobs(cluster: Cluster, used: set[str]) -> Iterator[Refusal]:
    for feature in FEATURES.values():
        field = feature.job_field
        if not field or feature.id in used:
            continue
        asking = next((job for job in cluster.jobs if getattr(job, field)), None)
        if asking is not None:
            wrong = (
                f"Job {asking.name} has {field}, and cluster {cluster.name} has no {feature.name}"
            )
            yield Refusal(wrong, f"{feature.on}, or leave {field} out")


def _called(part: EngineConfig | Cluster) -> str:
    return f"{'Cluster' if isinstance(part, Cluster) else 'Engine'} {part.name}"


def _listed(conjunction: str, words: list[str]) -> str:
    comma = "," if conjunction == "or" else ""
    return f"{', '.join(words[:-1])}{comma} {conjunction} {words[-1]}"
