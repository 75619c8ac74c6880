"""Unpacks archives."""

import tarfile
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.folders import folder_errors
from kvproof.model.files.reading import shown


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive to a folder. Nothing is written outside the folder. Raises UsageError
    where the archive is damaged, or where a file cannot be written."""
    with folder_errors(folder):
        try:
            with tarfile.open(archive) as opened:
                # Python 3.11.3 and earlier have no filter.
                opened.extraction_filter = getattr(tarfile, "data_filter", None)
                opened.extractall(folder)
        except tarfile.TarError as error:
            raise UsageError(
                f"The archive {shown(archive)} cannot be unpacked ({error}). Use a whole archive."
            ) from error
