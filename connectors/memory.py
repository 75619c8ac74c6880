"""The memory behind a connector: files in its folder, or a fake store of the kit. It may lose its
content, and fail."""

import shutil
from pathlib import Path

from kvproof.connectors.device.store_client import StoreClient


class Memory:
    """The files in a folder, and the stores of this episode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def forget(self) -> None:
        """Remove all content."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for store in StoreClient.made:
            store.forget()

    def fail(self, times: int, raises: bool) -> None:
        """Let the next calls fail; with an exception if `raises`."""
        for store in StoreClient.made:
            store.failures, store.raises = times, raises
