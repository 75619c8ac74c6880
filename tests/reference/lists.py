"""The presets, faults, features, checks and verdicts, as pages of docs/reference/ list them."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kvproof.invariants.registry import GUARDS, INVARIANTS
from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.features.registry import FEATURES, exclusions
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.model.severity import FAIL_ON, MEANINGS
from kvproof.reports.trace.engines import cluster_line
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import breaking
from tests.planted import SHORTEST
from tests.reference.markdown import code, paragraphs, table


def presets() -> str:
    """A line for each preset: its purpose, its engines, and how many states a search visits."""
    files = [CLUSTERS.file(name) for name in CLUSTERS]
    return table(
        ("cluster", "purpose", "engines and groups", "distinct states"),
        (
            (
                file.name,
                file.about,
                cluster_line(file.cluster),
                f"{file.distinct_states or 0:,}",
            )
            for file in files
        ),
    )


OF_FAULTS = ("fault", "origin", "mistake", "breaks", "cluster", "events")


def faults() -> str:
    """A line for each fault."""
    return table(
        OF_FAULTS,
        (
            (
                code(fault.name),
                fault.origin,
                fault.mistake,
                code(*fault.breaks),
                fault.cluster,
                str(SHORTEST.get(fault.name, "")),
            )
            for fault in FAULTS.values()
        ),
    )


OF_FEATURES = ("feature", "option", "needs", "not with", "on live vLLM only")


def features() -> str:
    """One line for each feature, section by section."""
    return table(OF_FEATURES, map(_cells, FEATURES.values()))


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


def invariants() -> str:
    """All invariants by severity, the gravest first."""
    return "\n\n".join(_invariants())


def _invariants() -> Iterator[str]:
    for severity, group in groupby(INVARIANTS.values(), key=lambda each: each.severity):
        assert severity is not None
        yield f"## {severity.words.capitalize()}"
        for each in group:
            yield f"### `{each.id}`"
            yield f"It must be true that {each.name}."
            yield paragraphs(each.story)
            when = "" if each.kind == "always" else " Asked of whole runs and graphs of states."
            faults = [f"`{fault.name}`" for fault in breaking(each)]
            more = f" and {len(faults) - 1} more" if faults[1:] else ""
            broken = f"Broken by the fault {faults[0]}{more}." if faults else ""
            ideal = "An ideal: only pairs of base and head are judged by it."
            yield f"Origin: {each.origin}. {ideal if each.ideal else broken}{when}"


def guards() -> str:
    """All guards by name."""
    return "\n\n".join(
        f"### `{guard.id}`\n\nIt must be true that {guard.name}.\n\n"
        f"{paragraphs(guard.story)}\n\n"
        f"Part of vLLM: {guard.part}. Severity: {guard.severity.words}."
        for guard in GUARDS.values()
    )


def verdicts() -> str:
    """Each verdict with its exit code, and where its meaning is."""
    page = "../explanation/verdicts.md"
    return table(
        ("verdict", "exit code"),
        (
            (f"[`{each.value}`]({page}#{each.value.lower()})", str(each.exit_code))
            for each in Verdict
        ),
    )


def severities() -> str:
    """Each severity: its name for `--fail-on`, its meaning, and what it does by default."""
    return table(
        ("`--fail-on`", "such a check guards against", "exit code by default"),
        (
            (f"`{each.option}`", meaning, "1" if each <= FAIL_ON else "0")
            for each, meaning in MEANINGS.items()
        ),
    )
