"""Every check by its id: invariants and guards, and the rules about connectors, start-ups and
loops."""

from typing import Protocol

from kvproof.invariants.check import FOUND
from kvproof.invariants.registry import CHECKS
from kvproof.model.severity import Severity


class AnyCheck(Protocol):
    """What checks and rules have in common."""

    @property
    def name(self) -> str:
        """What must be true."""

    @property
    def origin(self) -> str:
        """The pull request or the function of vLLM that it is from."""

    @property
    def severity(self) -> Severity | None:
        """What a user would notice; None where that is not known."""


def check_of(name: str) -> AnyCheck | None:
    """The check or rule of this id, None if there is none."""
    return CHECKS.get(name) or FOUND.get(name)
