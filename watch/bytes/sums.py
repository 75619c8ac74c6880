"""Checksums of blocks, computed on the device that has them.

A block's words of 64 bits are multiplied by odd weights and added up, and so are its layers. So a
change of one word always changes the sum, and any other change does so but by a rare chance.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import torch

BYTES_MAX = 32 << 20
"""The number of bytes of one layer that are copied at a time."""

FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
BY_SIZE = {each.itemsize: each for each in WORDS}


@cache
def _weights(count: int, device: torch.device) -> torch.Tensor:
    """Return odd numbers without a pattern, of 64 bits."""
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * FACTOR
    mixed = (mixed ^ (mixed >> 29)) * FACTOR
    return (mixed ^ (mixed >> 32)) | 1


def _words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of memory as rows of integers of 64 bits."""
    flat = rows.reshape(rows.shape[0], -1).view(torch.uint8)
    word = next(each for each in WORDS if flat.shape[1] % each.itemsize == 0)
    return flat.view(word).to(torch.int64)


def _of_layer(view: torch.Tensor, blocks: torch.Tensor) -> Iterator[torch.Tensor]:
    plain = view.view(BY_SIZE[view.element_size()])  # not every type of a cache can be selected
    size = view[0].numel() * view.element_size()
    for some in blocks.split(max(BYTES_MAX // size, 1)):
        words = _words(plain.index_select(0, some))
        yield (words * _weights(words.shape[1], words.device)).sum(1)


class Sums:
    """The sums of some blocks over the views of the layers of a group. On CUDA they are computed
    behind all that the device was given before, and are waited for in `result`."""

    def __init__(self, views: Sequence[torch.Tensor], blocks: Sequence[int]) -> None:
        device = views[0].device
        cuda = device.type == "cuda"
        with torch.inference_mode():
            chosen = torch.tensor(blocks, pin_memory=cuda).to(device, non_blocking=True)
            total = torch.zeros(len(blocks), dtype=torch.int64, device=device)
            for view in views:
                total = total * FACTOR + torch.cat(list(_of_layer(view, chosen)))
            self._values = torch.empty(len(blocks), dtype=torch.int64, pin_memory=cuda)
            self._values.copy_(total, non_blocking=cuda)
        self._event = None
        if cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        """Whether the sums are computed."""
        return self._event is None or self._event.query()

    def result(self) -> list[int]:
        """Return the sums, in the order of the blocks."""
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._values.tolist()
        return found
