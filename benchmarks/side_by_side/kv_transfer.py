"""The model of the benchmark: two requests move from P to D; each engine has a pool of blocks.

P truncates a prompt once, prefills it in chunks of any length and may preempt it. D takes blocks
for the tokens that its own cache does not hold, the two lists of blocks are trimmed, and D reads
block by block; a read may fail. The arithmetic is kvproof's (`counts`); the models for the other
checkers have their own copy.
"""

from typing import NamedTuple

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Truth, all_of, both, if_
from kvproof.model.arithmetic.ranges import Range, between
from kvproof.model.arithmetic.system import Action, System

NEW, PREFILL, OFFERED, LOADING, DECODE, DONE = range(6)
BACKOFF = 1
"""The number of prompt tokens that D computes itself, as in a transfer of a Mamba state."""


class Sizes(NamedTuple):
    """The sizes. In tokens: `prompt`, `chunk` (the maximum of a prefill step), `output` and the
    block size. In blocks: the pool of each engine."""

    prompt: int
    chunk: int
    output: int
    block_size: int
    p_blocks: int
    d_blocks: int


class Request(NamedTuple):
    """One request. `prompt` is 0 until P has received it. `computed` is the number of computed
    tokens on the engine that has the request; D has `hit` blocks in its cache and `left` blocks
    still to read."""

    phase: int = NEW
    prompt: int = 0
    computed: int = 0
    p_held: int = 0
    d_held: int = 0
    hit: int = 0
    left: int = 0


class State(NamedTuple):
    """Free blocks of both pools, and the requests."""

    p_free: int
    d_free: int
    requests: tuple[Request, Request]


def _initial(sizes: Sizes) -> State:
    return State(sizes.p_blocks, sizes.d_blocks, (Request(), Request()))


def _put(state: State, number: int, request: Request, **pools: int) -> State:
    requests = list(state.requests)
    requests[number] = request
    return state._replace(requests=tuple(requests), **pools)  # type: ignore[arg-type]


def _actions_of(number: int) -> tuple[Action, ...]:
    """The actions of one of the requests."""

    def phase(wanted: int) -> "Truth":
        return lambda _sizes, state: state.requests[number].phase == wanted

    def admit(sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        asked = if_(r.prompt == 0, sizes.prompt, r.prompt)
        prompt = counts.prompt_after_truncation(asked, BACKOFF, r.prompt > 0)
        return _put(state, number, r._replace(phase=PREFILL, prompt=prompt))

    def fits(sizes: Sizes, state: State, tokens: int) -> Truth:
        r = state.requests[number]
        end = r.computed + tokens
        needed = counts.blocks_for_tokens(end, sizes.block_size) - r.p_held
        return both(end <= r.prompt, needed <= state.p_free)

    def prefill(sizes: Sizes, state: State, tokens: int) -> State:
        r = state.requests[number]
        held = counts.blocks_for_tokens(r.computed + tokens, sizes.block_size)
        free = state.p_free - (held - r.p_held)
        r = r._replace(computed=r.computed + tokens, p_held=held)
        return _put(state, number, r, p_free=free)

    def preempt(_sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        free = state.p_free + r.p_held
        return _put(state, number, r._replace(phase=NEW, computed=0, p_held=0), p_free=free)

    def finished(_sizes: Sizes, state: State) -> Truth:
        r = state.requests[number]
        return both(r.phase == PREFILL, r.computed == r.prompt)

    def offer(_sizes: Sizes, state: State) -> State:
        return _put(state, number, state.requests[number]._replace(phase=OFFERED))

    def loadable(sizes: Sizes, state: State, hit: int) -> Truth:
        r = state.requests[number]
        needed = counts.blocks_for_tokens(r.prompt, sizes.block_size)
        return both(hit * sizes.block_size < r.prompt, needed <= state.d_free)

    def load(sizes: Sizes, state: State, hit: int) -> State:
        r = state.requests[number]
        total = counts.blocks_for_tokens(r.prompt, sizes.block_size)
        first, end, _, _ = counts.trim(hit, total - hit, 0, r.p_held)
        r = r._replace(phase=LOADING, d_held=total, hit=hit, left=end - first)
        return _put(state, number, r, d_free=state.d_free - total)

    def reading(_sizes: Sizes, state: State) -> Truth:
        r = state.requests[number]
        return both(r.phase == LOADING, r.left > 0)

    def read(_sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        return _put(state, number, r._replace(left=r.left - 1))

    def fail(_sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        free = state.d_free + r.d_held
        r = r._replace(phase=OFFERED, d_held=0, hit=0, left=0)
        return _put(state, number, r, d_free=free)

    def loaded(_sizes: Sizes, state: State) -> Truth:
        r = state.requests[number]
        return both(r.phase == LOADING, r.left == 0)

    def done(_sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        free = state.p_free + r.p_held
        return _put(state, number, r._replace(phase=DECODE, p_held=0, hit=0), p_free=free)

    def decodable(sizes: Sizes, state: State) -> Truth:
        r = state.requests[number]
        needed = counts.blocks_for_tokens(r.computed + 1, sizes.block_size) - r.d_held
        more = r.computed < sizes.prompt + sizes.output
        return all_of(r.phase == DECODE, more, needed <= state.d_free)

    def decode(sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        held = counts.blocks_for_tokens(r.computed + 1, sizes.block_size)
        free = state.d_free - (held - r.d_held)
        return _put(state, number, r._replace(computed=r.computed + 1, d_held=held), d_free=free)

    def ended(sizes: Sizes, state: State) -> Truth:
        r = state.requests[number]
        return both(r.phase == DECODE, r.computed == sizes.prompt + sizes.output)

    def finish(_sizes: Sizes, state: State) -> State:
        r = state.requests[number]
        free = state.d_free + r.d_held
        return _put(state, number, r._replace(phase=DONE, d_held=0), d_free=free)

    def tokens(sizes: Sizes) -> dict[str, Range]:
        return {"tokens": between(1, sizes.chunk)}

    def hits(sizes: Sizes) -> dict[str, Range]:
        return {"hit": between(0, counts.full_blocks(sizes.prompt, sizes.block_size))}

    return (
        Action(f"admit {number}", phase(NEW), admit),
        Action(f"prefill {number}", phase(PREFILL), prefill, tokens, fits),
        Action(f"preempt {number}", phase(PREFILL), preempt),
        Action(f"offer {number}", finished, offer),
        Action(f"load {number}", phase(OFFERED), load, hits, loadable),
        Action(f"read {number}", reading, read),
        Action(f"fail {number}", phase(LOADING), fail),
        Action(f"loaded {number}", loaded, done),
        Action(f"decode {number}", decodable, decode),
        Action(f"finish {number}", ended, finish),
    )


def pools_add_up(sizes: Sizes, state: State) -> Truth:
    """In each pool, free blocks and held blocks add up to all blocks."""
    first, second = state.requests
    return both(
        state.p_free + first.p_held + second.p_held == sizes.p_blocks,
        state.d_free + first.d_held + second.d_held == sizes.d_blocks,
    )


def truncated_once(sizes: Sizes, state: State) -> Truth:
    """P has shortened the prompt by one token, or has not received it yet."""
    return all_of(
        *(
            if_(r.prompt == 0, r.phase == NEW, r.prompt == sizes.prompt - BACKOFF)
            for r in state.requests
        )
    )


KV_TRANSFER = System(
    "kv_transfer",
    _initial,
    (*_actions_of(0), *_actions_of(1)),
    {"pools_add_up": pools_add_up, "truncated_once": truncated_once},
)

SIZES = {
    "small": Sizes(prompt=40, chunk=4, output=4, block_size=2, p_blocks=30, d_blocks=34),
    "middle": Sizes(prompt=128, chunk=4, output=4, block_size=2, p_blocks=96, d_blocks=106),
    "large": Sizes(prompt=256, chunk=4, output=4, block_size=2, p_blocks=192, d_blocks=212),
}
