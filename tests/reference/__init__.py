"""What docs/reference/ shows of the code: each block of a page, and the text that belongs there."""

from collections.abc import Callable, Mapping

from tests.reference import asked, commands, files, lists

BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "asked.md": {"checks": asked.checks, "views": asked.views},
    "clusters.md": {"presets": lists.presets},
    "commands.md": {"list": commands.listed, "commands": commands.commands},
    "faults.md": {"faults": lists.faults},
    "features.md": {"features": lists.features},
    "files.md": {
        "cluster": files.cluster,
        "events": files.events,
        "messages": files.messages,
        "actions": files.actions,
    },
    "invariants.md": {"invariants": lists.invariants, "guards": lists.guards},
    "verdicts.md": {"verdicts": lists.verdicts, "severities": lists.severities},
}
"""The pages, and for each the blocks in it by name."""
