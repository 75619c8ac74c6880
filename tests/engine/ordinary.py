"""An ordinary workload for a real engine: requests that share prefixes, come again, are aborted.

`work` is called in the process of the engine, see `tests.engine.runner`. What arrives is chosen by
a seed, and when by the number of steps, so every engine gets the same.
"""

import random
from collections import deque
from itertools import chain
from typing import Any, NamedTuple

BLOCK = 32
BLOCKS = 16
"""Blocks of a pool that is too small for all running requests, so that some are preempted."""

QUIET_STEPS_MAX = 200
"""So many steps without a token, while requests wait, are taken for a hang."""


class Arrival(NamedTuple):
    """A request that arrives before a step. It is aborted `abort` steps later, if at all."""

    step: int
    name: str
    prompt: list[int]
    salt: str | None
    max_tokens: int
    abort: int | None


class Hangs(Exception):
    """Requests wait, and no step gives a token."""


def pool() -> dict[str, Any]:
    """Options of an engine that gets it: the size of its pool, and a prompt takes several steps."""
    steps = {"max_model_len": 352, "max_num_batched_tokens": 96, "max_num_seqs": 6}
    return steps | {"num_gpu_blocks_override": BLOCKS}


def arrivals(seed: int, count: int) -> list[Arrival]:
    """The requests in the order of their arrival."""
    chooses = random.Random(seed)
    blocks = [_tokens(chooses, BLOCK) for _ in range(5)]
    found: list[Arrival] = []
    step = 0
    for number in range(count):
        before = chooses.choice(found).prompt if found and chooses.random() < 0.3 else None
        if before is not None:  # the same again, or the next turn of a conversation
            prompt = before + _tokens(chooses, chooses.choice((0, 0, 20, 40)))
        else:
            parts = blocks[: chooses.randrange(5)]
            if chooses.random() < 0.3:
                chooses.shuffle(parts)
            own = _tokens(chooses, chooses.choice((0, BLOCK, 7, 45)))
            prompt = [*chain(*parts), *own]
        prompt = prompt[:256] or _tokens(chooses, 50)
        salt = "other" if chooses.random() < 0.15 else None
        abort = chooses.randrange(1, 25) if chooses.random() < 0.2 else None
        length = chooses.choice((1, 8, 40, 70))
        found.append(Arrival(step, f"r{number}", prompt, salt, length, abort))
        step += chooses.choice((0, 0, 0, 1, 4, 12))
    return found


def _tokens(chooses: random.Random, count: int) -> list[int]:
    return [chooses.randrange(3, 500) for _ in range(count)]


def work(llm: Any, seed: int = 0, count: int = 60) -> dict[str, Any]:
    """Serve all requests. Half of them come after a reset of the prefix cache. Returns the answers
    to those that were not aborted, and the number of steps."""
    planned = arrivals(seed, count)
    tokens: dict[str, list[int]] = {}
    steps = 0
    for part in (planned[: count // 2], planned[count // 2 :]):
        steps += _serve(llm.llm_engine, deque(part), tokens)
        llm.llm_engine.reset_prefix_cache()
    return {"tokens": tokens, "steps": steps}


def _serve(engine: Any, coming: deque[Arrival], tokens: dict[str, list[int]]) -> int:
    """Serve some requests, beginning with the step of the first. Returns the number of steps."""
    first = step = coming[0].step
    aborts: dict[str, int] = {}
    quiet = 0
    while coming or engine.has_unfinished_requests():
        while coming and coming[0].step <= step:
            _add(engine, arrival := coming.popleft())
            if arrival.abort is not None:
                aborts[arrival.name] = step + arrival.abort
        for name in [name for name, at in aborts.items() if at <= step]:
            engine.abort_request([name])
            del aborts[name]
        outputs = engine.step() if engine.has_unfinished_requests() else []
        quiet = 0 if outputs or not engine.has_unfinished_requests() else quiet + 1
        if quiet > QUIET_STEPS_MAX:
            raise Hangs(f"no token in {quiet} steps")
        for output in outputs:
            if output.finished and output.outputs[0].finish_reason != "abort":
                tokens[output.request_id] = list(output.outputs[0].token_ids)
        step += 1
    return step - first


def _add(engine: Any, arrival: Arrival) -> None:
    from vllm import SamplingParams

    params = SamplingParams(
        max_tokens=arrival.max_tokens, temperature=0, ignore_eos=True, detokenize=False
    )
    inputs: dict[str, Any] = {"prompt_token_ids": arrival.prompt}
    if arrival.salt is not None:
        inputs["cache_salt"] = arrival.salt
    engine.add_request(arrival.name, inputs, params)
