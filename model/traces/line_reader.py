"""Reads a file of JSON Lines from the first line to the last. Each error names the line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from msgspec import Meta, Struct

from kvproof.model.errors import UsageError
from kvproof.model.files.decoding import KINDS, check_named_once, converted, decoded_json, kind_of
from kvproof.model.files.reading import shown
from kvproof.model.traces.lines import EndLine

Declared = TypeVar("Declared", bound=Struct)

Line = dict[str, Any]


READS_OLDER = "53d205f8"
"""The commit of kvproof that reads traces of schema 4, and plans, which had no schema."""


class Format(NamedTuple):
    """A kind of file: its name in errors, what its first line says, the only schema that kvproof
    reads, what records such a file or reads an older one, and what the first line said before."""

    what: str
    kind: str
    schema: int
    recorded_by: str
    kind_before: str = ""

    @property
    def whole(self) -> str:
        """What to use instead of a damaged file."""
        return f"a {self.what} file as kvproof wrote it"


class _Start(Struct, frozen=True):
    """The fields that the header of every schema has."""

    schema: Annotated[int, Meta(ge=1)]


class LineReader:
    """A reader of the lines of a file, one after the other. `number` is the number of the current
    line."""

    def __init__(self, path: Path, text: str, form: Format) -> None:
        self.path = shown(path)
        self.form = form
        self.lines = text.split("\n")
        self.kind = kind_of(text)
        self.number = 0
        self.ended = text.endswith("\n")
        if self.ended:
            self.lines.pop()

    @property
    def place(self) -> str:
        """The current line, as named in errors."""
        return f"Line {self.number} of {self.path}"

    def fail(self, what: str, use: str = "") -> NoReturn:
        """Refuse the current line."""
        raise UsageError(f"{self.place} {what}. Use {use or self.form.whole}.")

    @contextmanager
    def located(self) -> Iterator[None]:
        """Put the number of the current line in front of errors that other modules raise."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.place}: {error}") from error

    def next(self) -> Line:
        """The next line as plain data."""
        self.number += 1
        if self.number > len(self.lines):
            self.fail(f"is missing: the {self.form.what} was cut off before its end record")
        if self.number == 1 and self.kind == KINDS["actions"]:
            raise UsageError(
                f"{self.path} is {self.kind}. Use commit {READS_OLDER} of kvproof, which reads it."
            )
        if self.number == 1 and self.kind not in ("", KINDS["schema"]):
            raise UsageError(f"{self.path} is {self.kind}. Use {self.form.whole}.")
        if self.lines == [""] and not self.ended:
            self.fail(f"is missing: the file is empty, so the {self.form.what} was cut off")
        if self.number == len(self.lines) and not self.ended:
            self.fail(f"has no line end: the {self.form.what} was cut off")
        line = self.lines[self.number - 1]
        record = decoded_json(line, dict[str, Any], self.place, self.form.whole)
        check_named_once(line, self.place)
        if self.number == 1:
            self._check_schema(record)
        return record

    def _check_schema(self, record: Line) -> None:
        """Check the schema that the first line names. Only one schema is read."""
        what, kind, read, recorded_by, kind_before = self.form
        if record.get("kind") not in (kind, kind_before):
            self.fail(f"does not say kind {kind}", f"a {what} file, not another kind of file")
        schema = self.typed(record, _Start).schema
        if schema > read:
            self.fail(
                f"says schema {schema}, newer than the {read} this kvproof reads",
                f"a {what} of this release, or upgrade kvproof",
            )
        if schema < read:
            self.fail(
                f"says schema {schema}, older than the {read} this kvproof reads",
                f"{recorded_by} to record it anew",
            )

    def typed(self, record: Line, kind: type[Declared]) -> Declared:
        """Convert a line to a declared type."""
        return converted(record, kind, self.place, self.form.whole)

    def check_end(self, record: Line, steps: int) -> None:
        """Check that this line is the end record: it counts the events, and nothing follows it."""
        line = self.typed(record, EndLine)
        if line.end.steps != steps:
            what = self.form.what
            self.fail(f"counts {line.end.steps} steps where the {what} has {steps}")
        if self.number < len(self.lines):
            self.number += 1
            self.fail("follows the end record")
