"""What the requests of a run share with earlier ones, found out without kvproof's own answer."""

from collections.abc import Iterable

from kvproof.model.events import Admit, Schedule
from kvproof.model.ghost import common_prefix
from kvproof.model.step import Step


def shared_and_hit(steps: Iterable[Step]) -> tuple[int, int]:
    """The tokens that each first admission shares with earlier ones, and those that it hits."""
    earlier: dict[tuple[str, str], str] = {}
    shared = hit = 0
    for step in steps:
        event = step.event
        for chosen in (event.chose or ()) if isinstance(event, Schedule) else ():
            assert isinstance(event, Schedule)
            if isinstance(chosen, Admit) and (event.engine, chosen.request) not in earlier:
                tokens = step.before.engine(event.engine).request(chosen.request).tokens
                own = [each for (engine, _), each in earlier.items() if engine == event.engine]
                shared += max((common_prefix(each, tokens) for each in own), default=0)
                hit += chosen.local_hit
                earlier[event.engine, chosen.request] = tokens
        for engine in step.before.engines:
            for request in engine.requests:
                ended = step.after.engine(engine.name).find(request.id) is None
                if ended and (engine.name, request.id) in earlier:
                    earlier[engine.name, request.id] = request.tokens[: request.computed]
        for engine in step.after.engines:
            for request in engine.requests:
                if (engine.name, request.id) in earlier:
                    earlier[engine.name, request.id] = request.tokens
    return shared, hit
