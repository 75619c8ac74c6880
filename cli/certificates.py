"""`kvproof prove --certificates`: each query to Z3 as a file that another solver can check."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kvproof.cli.finish import File
from kvproof.model.files.folders import check_empty
from kvproof.model.files.reading import shown
from kvproof.proofs.certificate import write_certificates
from kvproof.proofs.prove import everything_named


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--certificates",
        type=Path,
        metavar="DIR",
        help="write each Z3 query as an SMT-LIB file into this new folder",
    )


def prepare(args: argparse.Namespace) -> None:
    """Raises UsageError if the certificates cannot be written."""
    if args.certificates is not None:
        for name in args.obligation:
            everything_named(name)  # raises for an unknown id
        check_empty(args.certificates)


class Certificates(File):
    """The folder of certificates; `count` is the number of files, None if they were not written."""

    def __init__(self, folder: Path, names: Sequence[str] | None) -> None:
        super().__init__(self._made, self._reported, whole=True)
        self.folder, self.names = folder, names
        self.count: int | None = None

    def _reported(self, path: Path) -> str:
        return f"{self.count} certificates are in {shown(path)}"

    def _made(self) -> Path:
        self.count = write_certificates(self.folder, names=self.names)
        return self.folder
