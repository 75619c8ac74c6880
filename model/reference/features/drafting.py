"""Drafts: tokens that a drafter proposes and the next step verifies (speculative decoding).

A step computes the draft tokens of a request after its known tokens. The environment chooses how
many are accepted, and the step's output reports it: accepted drafts become tokens, the others are
rejected. The drafter proposes the full number of drafts after each sampled token.

Where steps overlap, a step is scheduled as if all drafts of the step before were accepted. Its
tokens are known when that step has ended, and only then the worker executes it.

Sources: `Scheduler.update_from_output` and `update_draft_token_ids` of vLLM V1; of its worker
`preprocess_mamba` and `postprocess_mamba_fused_kernel`, for a Mamba group in align mode.
"""

import itertools
from collections.abc import Iterator, Mapping

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.events import NONE_ACCEPTED, Accepted
from kvproof.model.state import DRAFT, NULL, SAMPLED, VOID, Engine, Request


def _verified(engine: Engine) -> Iterator[tuple[str, int]]:
    """The number of drafts that the oldest step in flight verifies, for each request whose output
    the scheduler will use."""
    for name, _ in engine.step or ():
        yield name, engine.request(name).drafts
    for flight in engine.steps[0] if engine.steps else ():
        if flight.fate != VOID:
            yield flight.request, flight.drafts


def verdicts(engine: Engine) -> Iterator[Accepted]:
    """All possible acceptances of the oldest step in flight; the first accepts nothing."""
    open_to = [(name, drafts) for name, drafts in _verified(engine) if drafts]
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


def computable(cfg: config.Engine, request: Request, start: int, admitted: bool) -> int:
    """The number of tokens that a step may compute after the known tokens of a request: its drafts.
    A request that is admitted with one token left may get padding up to the width of the other
    requests; padding is no draft and is never accepted."""
    fill = admitted and len(request.tokens) - start == 1
    return cfg.drafts if fill else request.drafts


def scheduled(request: Request, ahead: int) -> Request:
    """The request with the drafts that a step verifies. The step ends `ahead` tokens after the
    known and pending tokens; drafts after its end are dropped."""
    return request._replace(drafts=max(min(request.drafts, ahead), 0))


def settled(
    cfg: config.Engine, engine: Engine, request: Request, accepted: int
) -> tuple[Engine, Request]:
    """Apply the number of accepted drafts of a step. The KV of accepted drafts becomes the KV of
    known tokens. The request steps back to the last accepted draft and continues from the state
    there."""
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
        states.append(memory.entry(table, continued_from(size, known, end, accepted)))
    computed = int(counts.computed_after_drafts(end, known, accepted))
    request = request._replace(computed=computed, drafts=0, states=tuple(states))
    engine = engine._replace(memory=tuple(held))
    return engine.with_request(request), request


def continued_from(size: int, known: int, end: int, accepted: int) -> int:
    """The position in the table of a Mamba group, with blocks of `size` tokens, of the state from
    which a request continues after a step that ended at `end`. After the running state the table
    has one block for each draft. The state of a full block is in its own place."""
    running, boundary = (end - 1) // size, int(counts.round_down(known + accepted, size))
    own = boundary > known and boundary // size - 1 == running
    return running if own else running + accepted


def lengthened(request: Request, tokens: int) -> Request:
    """The request with more sampled tokens, at most `max_tokens` in total. Dropped tokens still
    count as computed; vLLM may differ here, because the request ends."""
    tokens = min(tokens, request.max_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
