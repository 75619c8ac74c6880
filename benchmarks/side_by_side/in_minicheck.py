"""The model of kv_transfer.py for minicheck, with its own arithmetic.

    python in_minicheck.py PROMPT CHUNK OUTPUT BLOCK_SIZE P_BLOCKS D_BLOCKS

A state is a tuple, as minicheck requires; a request is a tuple too. Prints states and seconds as
JSON.
"""

import json
import sys
import time

from minicheck import Protocol, check_safety

PROMPT, CHUNK, OUTPUT, BLOCK_SIZE, P_BLOCKS, D_BLOCKS = map(int, sys.argv[1:])
NEW, PREFILL, OFFERED, LOADING, DECODE, DONE = range(6)
BACKOFF = 1
HITS = PROMPT // BLOCK_SIZE

Request = tuple[int, int, int, int, int, int, int]
State = tuple[int, int, Request, Request]


def steps(p_free: int, d_free: int, r: Request) -> list[tuple[str, int, int, Request]]:
    """The steps of one request, each with the free blocks after it."""
    phase, prompt, computed, p_held, d_held, hit, left = r
    found = []
    if phase == NEW:
        if prompt == 0:
            prompt = PROMPT - BACKOFF if PROMPT > BACKOFF else PROMPT
        after = (PREFILL, prompt, computed, p_held, d_held, hit, left)
        found.append(("admit", p_free, d_free, after))
    elif phase == PREFILL:
        for end in range(computed + 1, min(computed + CHUNK, prompt) + 1):
            held = -(-end // BLOCK_SIZE)
            free = p_free - (held - p_held)
            if free < 0:
                break
            after = (PREFILL, prompt, end, held, d_held, hit, left)
            found.append(("prefill", free, d_free, after))
        after = (NEW, prompt, 0, 0, d_held, hit, left)
        found.append(("preempt", p_free + p_held, d_free, after))
        if computed == prompt:
            after = (OFFERED, prompt, computed, p_held, d_held, hit, left)
            found.append(("offer", p_free, d_free, after))
    elif phase == OFFERED:
        total = -(-prompt // BLOCK_SIZE)
        if total <= d_free:
            offered = min(total, p_held)
            for hit in range(min(HITS, (prompt - 1) // BLOCK_SIZE) + 1):
                left = max(offered - hit, 0)
                after = (LOADING, prompt, computed, p_held, total, hit, left)
                found.append(("load", p_free, d_free - total, after))
    elif phase == LOADING:
        if left > 0:
            after = (LOADING, prompt, computed, p_held, d_held, hit, left - 1)
            found.append(("read", p_free, d_free, after))
        after = (OFFERED, prompt, computed, p_held, 0, 0, 0)
        found.append(("fail", p_free, d_free + d_held, after))
        if left == 0:
            after = (DECODE, prompt, computed, 0, d_held, 0, left)
            found.append(("loaded", p_free + p_held, d_free, after))
    elif phase == DECODE:
        if computed == PROMPT + OUTPUT:
            after = (DONE, prompt, computed, p_held, 0, hit, left)
            found.append(("finish", p_free, d_free + d_held, after))
        else:
            held = -(-(computed + 1) // BLOCK_SIZE)
            free = d_free - (held - d_held)
            if free >= 0:
                after = (DECODE, prompt, computed + 1, p_held, held, hit, left)
                found.append(("decode", p_free, free, after))
    return found


def transitions(state: State) -> list[tuple[str, State]]:
    """The steps of both requests."""
    p_free, d_free, first, second = state
    found = [(name, (p, d, r, second)) for name, p, d, r in steps(p_free, d_free, first)]
    found += [(name, (p, d, first, r)) for name, p, d, r in steps(p_free, d_free, second)]
    return found


def pools_add_up(d: dict) -> bool:
    """In each pool, free blocks and held blocks add up to all blocks."""
    first, second = d["first"], d["second"]
    return (
        d["p_free"] + first[3] + second[3] == P_BLOCKS
        and d["d_free"] + first[4] + second[4] == D_BLOCKS
    )


def truncated_once(d: dict) -> bool:
    """P has shortened the prompt by one token, or has not received it yet."""
    first, second = d["first"], d["second"]
    return (first[0] == NEW if first[1] == 0 else first[1] == PROMPT - BACKOFF) and (
        second[0] == NEW if second[1] == 0 else second[1] == PROMPT - BACKOFF
    )


def main() -> None:
    """Check, and print the result."""
    request = (NEW, 0, 0, 0, 0, 0, 0)
    model = Protocol(
        name="kv_transfer",
        candidate=False,
        fields=("p_free", "d_free", "first", "second"),
        initial=(P_BLOCKS, D_BLOCKS, request, request),
        transitions=transitions,
        invariants={"pools_add_up": pools_add_up, "truncated_once": truncated_once},
    )
    began = time.perf_counter()
    found = check_safety(model, max_states=1_000_000_000)
    seconds = time.perf_counter() - began
    if not found["exhaustive"] or not all(p["holds"] for p in found["properties"].values()):
        sys.exit(f"minicheck: {found}")
    print(json.dumps({"states": found["reachable_states"], "seconds": seconds}))


if __name__ == "__main__":
    main()
