"""This module follows the steps in flight of a watched engine: they are dispatched, and their
results have not arrived."""

from collections import deque
from typing import Any

from kvproof.live.batch import Batch
from kvproof.live.observer import view
from kvproof.model.state import COUNTS, Flight


class Flights:
    """Keep the steps in flight, oldest first, as the scheduler's outputs.

    An engine gets the results of the steps in their order. Where a test does otherwise, `known` is
    false from then on.
    """

    def __init__(self, scheduler: Any, steps_most: int) -> None:
        self.scheduler = scheduler
        self.steps_most = steps_most
        self.steps: deque[Any] = deque()
        self.known = not scheduler.requests

    def dispatched(self, output: Any) -> None:
        """Note that a step is dispatched."""
        if output.num_scheduled_tokens:
            self.steps.append(output)
        if len(self.steps) > self.steps_most:
            self.known = False
            self.steps.popleft()

    def arrived(self, output: Any) -> None:
        """Note that the result of a step arrives."""
        if not output.num_scheduled_tokens:
            return
        if self.steps and self.steps[0] is output:
            self.steps.popleft()
        else:
            self.known = False

    def of(self, live: Any) -> list[tuple[Flight, int]]:
        """Return the parts that a request has of the steps in flight, with the fate of each, and
        the number of tokens computed before it. A part samples if it reaches the end of the tokens
        that are known, or that parts before it sample."""
        name = live.request_id
        steps = [each for each in self.steps if name in each.num_scheduled_tokens]
        shares = [Flight(name, each.num_scheduled_tokens[name], samples=False) for each in steps]
        shares = view.fates(self.scheduler, name, shares)
        counted = sum(share.tokens for share in shares if share.fate == COUNTS)
        end, known = live.num_computed_tokens - counted, live.num_tokens
        found = []
        for step, share in zip(steps, shares, strict=True):
            if share.fate == COUNTS:
                start, end = end, end + share.tokens
                ahead = len(step.scheduled_spec_decode_tokens.get(name, ()))
                samples = end >= known
                known += (1 + ahead) if samples else 0
                found.append((share._replace(samples=samples, ahead=ahead), start))
            else:
                found.append((share, Batch.starts(step)[name]))
        return found
