"""The preset clusters."""

from kvproof.model.presets import CLUSTERS
from kvproof.reports.cluster_line import cluster_lines
from tests.reference.markdown import table


def presets() -> str:
    """A line for each preset: its purpose, its engines, and how many states a search visits."""
    files = [CLUSTERS.file(name) for name in CLUSTERS]
    return table(
        ("cluster", "purpose", "engines and groups", "distinct states"),
        (
            (
                file.name,
                file.about,
                "; ".join(cluster_lines(file.cluster)),
                f"{file.distinct_states or 0:,}",
            )
            for file in files
        ),
    )
