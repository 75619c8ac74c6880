"""Decodes what `--json` prints with its declared type."""

import msgspec

from kvproof.reports.output.base import OutputPart
from kvproof.reports.schemas import OUTPUTS


def decoded(text: str) -> OutputPart:
    """The output of a command; it is valid for exactly one of the declared types."""
    fits, errors = [], []
    for kind in OUTPUTS:
        try:
            fits.append(msgspec.json.decode(text, type=kind, strict=True))
        except msgspec.ValidationError as error:
            errors.append(f"{kind.__name__}: {error}")
    assert len(fits) == 1, errors
    return fits[0]
