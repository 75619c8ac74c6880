"""The memory behind a connector: files in its folder, or an honest store of the kit. It may lose
what it has, and fail."""

import shutil
from pathlib import Path

from kvproof.connectors.device.store_client import StoreClient


class Memory:
    """The files in a folder, and the stores of this episode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def forget(self) -> None:
        """Lose everything."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for store in StoreClient.made:
            store.forget()

    def fail(self, times: int, raises: bool) -> None:
        """Fail in the next calls; by an exception if `raises`."""
        for store in StoreClient.made:
            store.failures, store.raises = times, raises
