"""A fault: a historical mistake, as functions of the model that are replaced by wrong ones."""

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from kvproof.model import planting
from kvproof.model.errors import NAMED, FaultStopsModel, UsageError
from kvproof.model.raised import frames, places

Wrong = TypeVar("Wrong", bound=Callable[..., Any])
"""The wrong function, which `@fault` leaves as it is."""

REGISTERED: dict[str, "Fault"] = {}
"""The faults by name, in the order in which their modules were imported. `FAULTS` has them all."""


@dataclass(frozen=True)
class Fault:
    """A mistake of the reference.

    `story` says what happened in vLLM, and `mistake` in one sentence what is done wrong. `in_vllm`
    is the function of vLLM in which the mistake is made, empty where it is made in no single one.
    `replaces` names each function that is replaced, as `module:function` below `kvproof.model`,
    with the wrong one. `breaks` are the ids of the invariants that must find it. `cluster` is the
    name of the preset that shows it after the fewest events, `also_in` other presets for what does
    not show there.
    """

    name: str
    story: str
    origin: str
    mistake: str
    replaces: planting.Replaced
    breaks: tuple[str, ...]
    cluster: str
    in_vllm: str = ""
    also_in: tuple[str, ...] = ()

    @property
    def clusters(self) -> tuple[str, ...]:
        """The presets in which it shows, the smallest first."""
        return (self.cluster, *self.also_in)


def fault(
    mistake: str,
    *,
    origin: str,
    replaces: str,
    breaks: str | tuple[str, ...],
    cluster: str,
    in_vllm: str = "",
    also_replaces: planting.Replaced | None = None,
    also_in: tuple[str, ...] = (),
) -> Callable[[Wrong], Wrong]:
    """Register the decorated function as a fault, which has its name; its docstring is the story.

    `replaces` names the function whose place it takes. A mistake in the arithmetic of `counts`
    needs no more; a mistake of the reference that the proofs are to find too also replaces the
    function of `counting_abstraction`, in `also_replaces`. The others are the fields of `Fault`.

    Raises UsageError where the model has no function of this name, where the wrong one does not
    take the same arguments, and where another fault has the same name.
    """

    def register(wrong: Wrong) -> Wrong:
        name = wrong.__name__
        replaced: dict[str, Callable[..., Any]] = {replaces: wrong, **(also_replaces or {})}
        for right, instead in replaced.items():
            planting.check(right, instead)
        if name in REGISTERED:
            raise UsageError(f"Two faults are named {name}. Use another name for one of them.")
        REGISTERED[name] = Fault(
            name=name,
            story=inspect.getdoc(wrong) or "",
            origin=origin,
            mistake=mistake,
            replaces=replaced,
            breaks=(breaks,) if isinstance(breaks, str) else breaks,
            cluster=cluster,
            in_vllm=in_vllm,
            also_in=also_in,
        )
        return wrong

    return register


def replaced_by(faults: Iterable[Fault]) -> planting.Replaced:
    """What these faults replace together. Raises UsageError if two replace the same function."""
    chosen = list(faults)
    times = Counter(name for fault in chosen for name in fault.replaces)
    if any(count > 1 for count in times.values()):
        raise UsageError(
            f"The faults {', '.join(f.name for f in chosen[:NAMED])} replace the same function. "
            "Use one fault for each function."
        )
    return {name: wrong for fault in chosen for name, wrong in fault.replaces.items()}


@contextlib.contextmanager
def planted(*faults: Fault) -> Iterator[None]:
    """Have these faults in the model until the block ends. Raises UsageError if two replace the
    same function, and FaultStopsModel where an exception in a function of the model ends the
    block."""
    with planting.planted(replaced_by(faults)):
        try:
            yield
        except UsageError:
            raise
        except Exception as error:
            if faults and (where := _place_in_the_model(error)):
                names = ", ".join(each.name for each in faults)
                raise FaultStopsModel(
                    f"The model cannot go on after the fault {names} ({type(error).__name__} in "
                    f"{where}: {error}). Use a check or a cluster that shows the fault before that."
                ) from error
            raise


def _place_in_the_model(error: Exception) -> str:
    """Where a function of the model raised an exception; empty where something else did, or where a
    check called the function."""
    modules = [str(frame.f_globals.get("__name__")) for frame in frames(error)]
    if not planting.in_the_model(modules[-1]) or any("kvproof.invariants" in e for e in modules):
        return ""
    return f"{modules[-1]}, line {places(error)[-1].lineno}"
