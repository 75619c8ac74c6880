"""What docs/reference/ shows of the code: each block of a page, and the text that belongs there."""

from collections.abc import Callable, Mapping

from tests.reference import asked, checks, clusters, commands, faults, features, files, verdicts

BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "asked.md": {"checks": asked.checks, "views": asked.views},
    "clusters.md": {"presets": clusters.presets},
    "commands.md": {"list": commands.listed, "commands": commands.commands},
    "faults.md": {"faults": faults.faults},
    "features.md": {"features": features.table},
    "files.md": {"cluster": files.cluster, "events": files.events},
    "invariants.md": {"invariants": checks.invariants, "guards": checks.guards},
    "verdicts.md": {"verdicts": verdicts.verdicts, "severities": verdicts.severities},
}
"""The pages, and for each the blocks in it by name."""
