"""What an engine has served: the only memory of the past that invariants need.

An entry says that a prompt's prefill completed here and that nothing was evicted since. The record
is cleared whenever a cache entry is lost, so it never promises too much.
"""

from kvproof.model import counts
from kvproof.model.state import SAMPLED, Engine, Request, Served


def common_prefix(a: str, b: str) -> int:
    """Tokens two prompts share from the start."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def shared_with_served(engine: Engine, tokens: str, unit: int) -> int:
    """The longest prefix, in whole units, that a served prompt has in common with `tokens`."""
    longest = max((common_prefix(s.prompt, tokens) for s in engine.served), default=0)
    return int(counts.round_down(longest, unit))


def record_served(engine: Engine, request: Request) -> Engine:
    """The engine with a prompt noted as served, once per prompt and sharing."""
    if request.output:
        return engine
    served = tuple(sorted({*engine.served, Served(request.prompt, request.shared)}))
    return engine._replace(served=served)


def sampled(request: Request) -> Request:
    """The request with one more token."""
    return request._replace(output=request.output + SAMPLED)
