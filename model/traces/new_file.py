"""Writes new files and never overwrites a file."""

from pathlib import Path

from kvproof.model.errors import UsageError


def write_new(path: Path, content: str | bytes) -> None:
    """Write a new file, text as UTF-8. Raises UsageError where it exists or cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise UsageError(
            f"The file {path} exists and is not overwritten. Use the name of a new file."
        ) from error
    except OSError as error:
        raise UsageError(
            f"The file {path} cannot be written ({error.strerror}). "
            "Use a file in a folder that you may write to."
        ) from error
