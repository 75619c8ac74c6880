"""Machines that are driven by a test."""

from typing import TypeVar

from kvproof.model.events import Event
from kvproof.model.machine import Machine

Driven = TypeVar("Driven", bound=Machine)


def taken(machine: Driven, *events: Event) -> Driven:
    """The machine after these events."""
    for event in events:
        machine.take(event)
    return machine
