"""Attributes that vLLM has renamed: the adapter goes on under the names it knows.

A line of the contract says it: `Request.preemption_count as num_preemptions`. The class of vLLM
then answers to the name that it no longer has, which nothing of vLLM asks for. Reads, calls and
what the recorder puts in the place of a method all go to the new name.
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
    """The object, whose class answers to the names that the contract has for objects with this
    label. A name that the class has by itself is left alone."""
    for place in _RENAMED:
        named = place.names[0] == label and hasattr(thing, place.names[-1])
        if named and not hasattr(thing, place.known_as):
            setattr(_class_of(thing, label), place.known_as, Alias(place.names[-1]))
    return thing


def _class_of(thing: Any, label: str) -> type:
    """The class with the label as its name, so that its other subclasses answer as well."""
    classes = type(thing).__mro__
    return next((each for each in classes if each.__name__ == label), classes[0])
