"""Attributes that vLLM has renamed: the adapter still uses the names that it knows.

An entry of the contract declares it: `Request.preemption_count as num_preemptions`. The class of
vLLM then also has the old name, which vLLM itself does not use. Reads, calls and the methods that
the recorder replaces all use the new name.
"""

from typing import Any

from kvproof.live.contract.table import TABLE

_RENAMED = [place for entry in TABLE for place in entry.places if place.known_as]


class Alias:
    """Another name of an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, thing: Any, kind: type) -> Any:
        return getattr(kind if thing is None else thing, self.name)

    def __set__(self, thing: Any, value: Any) -> None:
        setattr(thing, self.name, value)


def follow(label: str, thing: Any) -> Any:
    """Add the names that the contract has for objects with this label to the object's class, and
    return the object. A name that the class already has is not changed."""
    for place in _RENAMED:
        named = place.names[0] == label and hasattr(thing, place.names[-1])
        if named and not hasattr(thing, place.known_as):
            setattr(_class_of(thing, label), place.known_as, Alias(place.names[-1]))
    return thing


def _class_of(thing: Any, label: str) -> type:
    """The class with the label as its name, so that its other subclasses get the name too."""
    classes = type(thing).__mro__
    return next((each for each in classes if each.__name__ == label), classes[0])
