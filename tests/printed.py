"""What is printed of a trace or a record where there is no terminal."""

import io
from collections.abc import Callable


def printed(show: Callable[..., None], *shown: object) -> str:
    """The text that `show` of `reports/terminal.py` or `reports/record.py` prints."""
    out = io.StringIO()
    show(out, *shown)
    return out.getvalue()
