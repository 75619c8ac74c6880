"""Drafts of a step in flight: how many of them the environment may accept.

Source: `Scheduler.update_from_output` and `update_draft_token_ids` of vLLM V1.
"""

import itertools
from collections.abc import Iterator, Mapping

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.events import NONE_ACCEPTED, Accepted
from kvproof.model.state import VOID, Engine


def _verified(engine: Engine) -> Iterator[tuple[str, int]]:
    """The number of drafts that the oldest step in flight verifies, for each request whose output
    the scheduler will use."""
    for name, _ in engine.step or ():
        yield name, engine.request(name).drafts
    for flight in engine.steps[0] if engine.steps else ():
        if flight.fate != VOID:
            yield flight.request, flight.drafts


def verdicts(cluster: config.Cluster, engine: Engine) -> Iterator[Accepted]:
    """All possible acceptances of the oldest step in flight; the first accepts nothing.

    Where steps do not overlap, no draft after an answer of a session is accepted: vLLM counts its
    KV as that of the next part (finding drafts_beyond_the_answer), and nothing after it is true.
    """
    open_to = [(name, drafts) for name, drafts in _verified(engine) if drafts]
    if cluster.sessions and engine.step is not None:
        requests = {r.id: r for r in engine.requests}
        left = {n: r.max_tokens - len(r.output) - 1 for n, r in requests.items()}
        open_to = [(name, min(drafts, left[name])) for name, drafts in open_to]
    if not open_to:
        yield NONE_ACCEPTED
        return
    for accepted in itertools.product(*(range(drafts + 1) for _, drafts in open_to)):
        yield Accepted((n, a) for (n, _), a in zip(open_to, accepted, strict=True) if a)


def check(engine: Engine, accepted: Mapping[str, int]) -> None:
    """Raises NotAllowed where the oldest step in flight verifies fewer drafts than are accepted."""
    verified = dict(_verified(engine))
    for name, count in accepted.items():
        if not 0 < count <= verified.get(name, 0):
            raise NotAllowed(f"{count} drafts of {name} are accepted of {verified.get(name, 0)}")


def awaits(cfg: config.EngineConfig, engine: Engine, name: str) -> bool:
    """Whether the worker must wait for the output of the step before. It must where that step
    samples and may reject drafts, because only then it is known which tokens of the request a new
    step computes."""
    return cfg.drafts > 0 and engine.placeholders(name) > 0
