"""The settings of a random cluster while its features are chosen: fields by name, unchecked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

Value = TypeVar("Value")

BLOCK_SIZES = (1, 2, 4, 8)
"""The block sizes of random clusters, in tokens."""


@dataclass
class RandomSettings:
    """The settings that features may change. `groups` has the fields of each group, `engine` the
    fields of every engine, `decode` those that D has instead, `cluster` the fields of the cluster.
    `kernel_blocks` has the kernel blocks per block of P and of D where a feature sets them; the
    block sizes of P and D are multiplied by these numbers."""

    random: Random
    pair: bool
    groups: list[dict[str, Any]]
    engine: dict[str, Any] = field(default_factory=dict)
    decode: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    kernel_blocks: tuple[int, ...] = ()

    def choose(self, values: Sequence[Value]) -> Value:
        """One of these values, all with the same probability."""
        return self.random.choice(values)

    def on_engines(self, **fields: object) -> None:
        """Set fields of every engine."""
        self.engine.update(fields)

    def on_cluster(self, **fields: object) -> None:
        """Set fields of the cluster."""
        self.cluster.update(fields)

    def attention(self) -> Iterator[dict[str, Any]]:
        """The fields of each group that is no Mamba group."""
        return (group for group in self.groups if group["kind"] != "mamba")

    def aligned(self) -> Iterator[dict[str, Any]]:
        """The fields of each Mamba group whose states are cached."""
        return (g for g in self.groups if g["kind"] == "mamba" and g.get("mode") != "none")
