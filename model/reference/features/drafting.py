"""Drafts: tokens that a drafter proposes and the next step verifies (speculative decoding).

A step computes the drafts of a request after its known tokens. How many of them were right is the
choice of the environment, and is told with the step's output: these have become tokens, the others
were computed for nothing. The drafter proposes as many as it may after each token that is sampled.

Where steps overlap, a step is scheduled as if all drafts of the one ahead of it were right. Which
tokens it computes is known when that one has ended: only then the worker runs it.

Sources: `Scheduler.update_from_output` and `update_draft_token_ids` of vLLM V1; of its worker
`preprocess_mamba` and `postprocess_mamba_fused_kernel`, for a Mamba group in align mode.
"""

import itertools
from collections.abc import Iterator

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.rules import Rules
from kvproof.model.state import DRAFT, NULL, SAMPLED, VOID, Engine, Request

Accepted = tuple[tuple[str, int], ...]
"""The requests of which drafts were accepted, in the order of the step, and how many."""


def _verified(engine: Engine) -> Iterator[tuple[str, int]]:
    """The drafts that the oldest step in flight verifies, of each request whose output is taken."""
    for name, _ in engine.step or ():
        yield name, engine.request(name).drafts
    for flight in engine.steps[0] if engine.steps else ():
        if flight.fate != VOID:
            yield flight.request, flight.drafts


def verdicts(engine: Engine) -> Iterator[Accepted]:
    """All that the output of the oldest step in flight may accept, nothing first."""
    open_to = [(name, drafts) for name, drafts in _verified(engine) if drafts]
    for accepted in itertools.product(*(range(drafts + 1) for _, drafts in open_to)):
        yield tuple((n, a) for (n, _), a in zip(open_to, accepted, strict=True) if a)


def check(engine: Engine, accepted: Accepted) -> None:
    """Raises NotAllowed where the oldest step in flight verifies no such drafts."""
    verified = dict(_verified(engine))
    for name, count in accepted:
        if not 0 < count <= verified.get(name, 0):
            raise NotAllowed(f"{count} drafts of {name} are accepted of {verified.get(name, 0)}")


def computable(cfg: config.Engine, request: Request, start: int, admitted: bool) -> int:
    """Tokens a step may compute of a request after the known ones: its drafts. A request that is
    admitted with one token left may be filled up to the width of the others; what fills it is no
    draft, and is never accepted."""
    fill = admitted and len(request.tokens) - start == 1
    return cfg.drafts if fill else request.drafts


def scheduled(request: Request, ahead: int) -> Request:
    """The request with the drafts that a step verifies which ends so many tokens after those that
    are known or pending; the others are lost."""
    return request._replace(drafts=max(min(request.drafts, ahead), 0))


def settled(
    cfg: config.Engine, engine: Engine, request: Request, accepted: int, rules: Rules
) -> tuple[Engine, Request]:
    """The output of a step says how many drafts were right. What they wrote is of those tokens; the
    request steps back to the last of them, and continues from the state there."""
    known, end = len(request.tokens), request.computed
    held = list(engine.memory)
    states = []
    for index, group in enumerate(cfg.groups):
        table, size = request.tables[index], group.block_size
        running = (end - 1) // size
        for count in range(1, accepted + 1):
            position = known + count - 1
            column, slot = (position // size, position % size) if group.attention else (running, 0)
            column += 0 if group.attention else count
            block = memory.entry(table, column)
            if memory.slot(held, block, index, slot) == request.tokens + DRAFT * count:
                width = memory.width(cfg, group)
                right = request.tokens + SAMPLED * count
                memory.write(held, block, index, width, {slot: right})
                if group.attention and slot == size - 1 and width > size:
                    memory.write(held, block, index, width, {size: right + SAMPLED})
        if group.attention:
            states.append(NULL)
            continue
        boundary = int(counts.round_down(known + accepted, size))
        own = boundary // size - 1
        if boundary > known:
            # The state of a full block goes to its own place in the table.
            source = memory.entry(table, running + boundary - known)
            state = memory.slot(held, source, index, 0) or ""
            memory.write(held, memory.entry(table, own), index, 1, {0: state})
        kept = rules.states_kept(accepted, max(end - known, 0))
        last = running if boundary > known and own == running else running + kept
        states.append(memory.entry(table, last))
    computed = int(rules.computed_after_drafts(end, known, accepted))
    request = request._replace(computed=computed, drafts=0, states=tuple(states))
    engine = engine._replace(memory=tuple(held))
    return engine.with_request(request), request


def lengthened(request: Request, tokens: int) -> Request:
    """The request with more sampled tokens, as many as it asked for at most. Those that are cut off
    stay counted as computed; a vLLM may do otherwise, for the request ends here."""
    tokens = min(tokens, request.max_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
