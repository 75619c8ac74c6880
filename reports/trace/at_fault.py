"""The function of vLLM that is at fault in a trace, where that is known: most faults and most known
findings are made in one function of vLLM. A hang is refused by the function that the waiting
request needs."""

from collections.abc import Iterable

from kvproof.model.faults.registry import FAULTS
from kvproof.model.known_finding import KnownFinding


def at_fault(faults: Iterable[str], known: KnownFinding | None = None) -> list[str]:
    """Return the functions of vLLM in which these faults, and this known finding, are made."""
    names = [*faults, *([known.name] if known else ())]
    functions = [FAULTS[name].in_vllm for name in names if name in FAULTS]
    return list(dict.fromkeys(filter(None, [*functions, known.in_vllm if known else ""])))
