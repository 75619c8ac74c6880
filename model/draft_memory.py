"""The KV and the states of drafts, when it is known how many of them are accepted.

The KV of accepted drafts becomes the KV of known tokens. A Mamba group in align mode continues from
the state of the last accepted draft.

Sources: `preprocess_mamba` and `postprocess_mamba_fused_kernel` of vLLM V1's worker.
"""

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.state import DRAFT, NULL, SAMPLED, Engine, Request


def settled(
    cfg: config.EngineConfig, engine: Engine, request: Request, accepted: int
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
