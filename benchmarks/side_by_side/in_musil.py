"""The model of kv_transfer.py for musil, with its own arithmetic.

    python3.12 in_musil.py PROMPT CHUNK OUTPUT BLOCK_SIZE P_BLOCKS D_BLOCKS

Actions are created once; `actions_fn` returns the enabled ones. States are named tuples, which hash
faster than frozen dataclasses. Prints states and seconds as JSON.
"""

import json
import sys
import time
from typing import NamedTuple

from musil import Action, Model, check

PROMPT, CHUNK, OUTPUT, BLOCK_SIZE, P_BLOCKS, D_BLOCKS = map(int, sys.argv[1:])
NEW, PREFILL, OFFERED, LOADING, DECODE, DONE = range(6)
BACKOFF = 1
HITS = PROMPT // BLOCK_SIZE


class Request(NamedTuple):
    """One request."""

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
    first: Request
    second: Request


def always(_state: State) -> bool:
    """The guard of every action: `actions_fn` returns enabled actions only."""
    return True


class Actions:
    """The actions of one request."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.admit = self.action("admit", admit)
        self.prefill = [self.action(f"prefill {n}", prefill, n) for n in range(CHUNK + 1)]
        self.preempt = self.action("preempt", preempt)
        self.offer = self.action("offer", offer)
        self.load = [self.action(f"load {n}", load, n) for n in range(HITS + 1)]
        self.read = self.action("read", read)
        self.fail = self.action("fail", fail)
        self.loaded = self.action("loaded", loaded)
        self.decode = self.action("decode", decode)
        self.finish = self.action("finish", finish)

    def action(self, name: str, then, *chosen: int) -> Action[State]:
        """A step of this request; `then` gives the free blocks and the request after it."""
        if self.number == 0:

            def apply(state: State) -> State:
                p_free, d_free, r, other = state
                p_free, d_free, r = then(p_free, d_free, r, *chosen)
                return State(p_free, d_free, r, other)
        else:

            def apply(state: State) -> State:
                p_free, d_free, other, r = state
                p_free, d_free, r = then(p_free, d_free, r, *chosen)
                return State(p_free, d_free, other, r)

        return Action(f"{name} of {self.number}", always, apply)

    def enabled(self, p_free: int, d_free: int, r: Request) -> list[Action[State]]:
        """The actions that are possible."""
        phase, prompt, computed, p_held, d_held, _, left = r
        if phase == NEW:
            return [self.admit]
        if phase == PREFILL:
            tokens = min(CHUNK, prompt - computed, (p_held + p_free) * BLOCK_SIZE - computed)
            found = [*self.prefill[1 : tokens + 1], self.preempt]
            if computed == prompt:
                found.append(self.offer)
            return found
        if phase == OFFERED:
            if -(-prompt // BLOCK_SIZE) > d_free:
                return []
            return self.load[: (prompt - 1) // BLOCK_SIZE + 1]
        if phase == LOADING:
            return [self.read if left else self.loaded, self.fail]
        if phase == DECODE:
            if computed == PROMPT + OUTPUT:
                return [self.finish]
            if -(-(computed + 1) // BLOCK_SIZE) - d_held <= d_free:
                return [self.decode]
        return []


def admit(p_free: int, d_free: int, r: Request):
    _, prompt, computed, p_held, d_held, hit, left = r
    if prompt == 0:
        prompt = PROMPT - BACKOFF if PROMPT > BACKOFF else PROMPT
    return p_free, d_free, Request(PREFILL, prompt, computed, p_held, d_held, hit, left)


def prefill(p_free: int, d_free: int, r: Request, tokens: int):
    phase, prompt, computed, p_held, d_held, hit, left = r
    held = -(-(computed + tokens) // BLOCK_SIZE)
    after = Request(phase, prompt, computed + tokens, held, d_held, hit, left)
    return p_free - (held - p_held), d_free, after


def preempt(p_free: int, d_free: int, r: Request):
    _, prompt, _, p_held, d_held, hit, left = r
    return p_free + p_held, d_free, Request(NEW, prompt, 0, 0, d_held, hit, left)


def offer(p_free: int, d_free: int, r: Request):
    return p_free, d_free, Request(OFFERED, *r[1:])


def load(p_free: int, d_free: int, r: Request, hit: int):
    _, prompt, computed, p_held, _, _, _ = r
    total = -(-prompt // BLOCK_SIZE)
    left = max(min(total, p_held) - hit, 0)
    return p_free, d_free - total, Request(LOADING, prompt, computed, p_held, total, hit, left)


def read(p_free: int, d_free: int, r: Request):
    phase, prompt, computed, p_held, d_held, hit, left = r
    return p_free, d_free, Request(phase, prompt, computed, p_held, d_held, hit, left - 1)


def fail(p_free: int, d_free: int, r: Request):
    _, prompt, computed, p_held, d_held, _, _ = r
    return p_free, d_free + d_held, Request(OFFERED, prompt, computed, p_held, 0, 0, 0)


def loaded(p_free: int, d_free: int, r: Request):
    _, prompt, computed, p_held, d_held, _, left = r
    return p_free + p_held, d_free, Request(DECODE, prompt, computed, 0, d_held, 0, left)


def decode(p_free: int, d_free: int, r: Request):
    phase, prompt, computed, p_held, d_held, hit, left = r
    held = -(-(computed + 1) // BLOCK_SIZE)
    after = Request(phase, prompt, computed + 1, p_held, held, hit, left)
    return p_free, d_free - (held - d_held), after


def finish(p_free: int, d_free: int, r: Request):
    _, prompt, computed, p_held, d_held, hit, left = r
    return p_free, d_free + d_held, Request(DONE, prompt, computed, p_held, 0, hit, left)


FIRST, SECOND = Actions(0), Actions(1)


def enabled(state: State) -> list[Action[State]]:
    """The possible actions of both requests."""
    p_free, d_free, first, second = state
    return FIRST.enabled(p_free, d_free, first) + SECOND.enabled(p_free, d_free, second)


def pools_add_up(state: State) -> bool:
    """In each pool, free blocks and held blocks add up to all blocks."""
    p_free, d_free, first, second = state
    return (
        p_free + first.p_held + second.p_held == P_BLOCKS
        and d_free + first.d_held + second.d_held == D_BLOCKS
    )


def truncated_once(state: State) -> bool:
    """P has shortened the prompt by one token, or has not received it yet."""
    _, _, first, second = state
    return (first.phase == NEW if first.prompt == 0 else first.prompt == PROMPT - BACKOFF) and (
        second.phase == NEW if second.prompt == 0 else second.prompt == PROMPT - BACKOFF
    )


def main() -> None:
    """Check, and print the result. No checker looks for deadlocks."""
    model = Model(
        init=[State(P_BLOCKS, D_BLOCKS, Request(), Request())],
        actions_fn=enabled,
        invariants={"pools_add_up": pools_add_up, "truncated_once": truncated_once},
        terminal=always,
    )
    began = time.perf_counter()
    found = check(model, max_states=1_000_000_000)
    seconds = time.perf_counter() - began
    if not found.ok or found.truncated:
        sys.exit(f"musil: {found}")
    print(json.dumps({"states": found.states_explored, "seconds": seconds}))


if __name__ == "__main__":
    main()
