"""The block ledger: one HTML file that needs no network and no server.

The page has the events with their changes of the state, as the file has them. Its program makes
the state after any event of them, and shows a lane for each request and each block.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvproof.model.files.reading import read_text

PARTS = {
    "style": ("ledger.css",),
    "program": ("states.js", "cells.js", "lanes.js", "transfers.js", "ledger.js"),
}
"""The files of the page, by the place in the template that they take."""

FOLDER = Path(__file__).parent


def page(data: Mapping[str, Any]) -> str:
    """Return the page of these data as HTML."""
    html = _file("ledger.html")
    for place, names in PARTS.items():
        html = html.replace(f"/*{place}*/", "\n".join(map(_file, names)))
    encoded = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")  # in a script element
    return html.replace("/*data*/null", encoded)


def _file(name: str) -> str:
    return read_text(FOLDER / name, "part of the page", 1)
