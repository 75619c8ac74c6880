"""Streaming input: sessions that receive the parts of a prompt one after the other. What sends the
parts runs in the engine's process."""

from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import INSIDE, Engine, Seen, alone
from tests.engine.workloads import tokens


def part(llm: Any, name: str, tokens: list[int], answer: int) -> None:
    """A part of a session arrives, as AsyncLLM sends it to the engine's core."""
    from vllm import SamplingParams

    request = llm.llm_engine.input_processor.process_inputs(
        name,
        {"prompt_token_ids": tokens},
        SamplingParams(max_tokens=answer, temperature=0, ignore_eos=True, detokenize=False),
        supported_tasks=("generate",),
        resumable=True,
    )
    llm.llm_engine.engine_core.add_request(request)


def steps(llm: Any, count: int) -> dict[str, list[int]]:
    """Take steps. Returns the tokens of each session in them."""
    tokens: dict[str, list[int]] = {}
    for _ in range(count):
        for output in llm.llm_engine.engine_core.get_output().outputs:
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
    return tokens


def end(llm: Any, name: str) -> None:
    """The user of a session leaves."""
    llm.llm_engine.engine_core.abort_requests([name])


@alone(
    "full",
    {
        "speculative_config": {
            "method": "draft_model",
            "model": "full",  # the same model, so all drafts are accepted
            "num_speculative_tokens": 3,
        }
    },
    named=("engine_survives",),
)
def drafts_beyond_the_answer(engine: Engine) -> Iterator[Seen]:
    """A part of a session ends among accepted drafts, which count as computed tokens of the next:
    a second part of five tokens, and one of two."""
    first, then = tokens(1, 30), tokens(2, 5)
    kept = engine.ask(first, 2).tokens[:1]
    for length in (5, 2):
        right = engine.ask([*first, *kept, *then[:length]], 4).tokens
        assert engine.reset()
        name = f"session{length}"
        engine.inside(f"{__name__}:part", name, first, 2)
        assert engine.inside(f"{__name__}:steps", 5)[name][:1] == kept
        engine.inside(f"{__name__}:part", name, then[:length], 4)
        answer = engine.process.take(["call", f"{__name__}:steps", 10])
        got = answer.error or answer.results[0].get(name)
        yield Seen(f"tokens of a second part of {length}", got, right)
        if answer.error is None:
            engine.inside(f"{__name__}:end", name)


@alone(
    "full",
    {"max_model_len": 96, "num_gpu_blocks_override": 4},
    before=(["call", f"{INSIDE}:overlapping_steps"],),
    named=("every_request_in_one_queue", "step_makes_progress", "truncated_at_most_once"),
)
def late_end_loses_session(engine: Engine) -> Iterator[Seen]:
    """A session is preempted while the last token of its answer is computed, and its second part
    comes."""
    first, then = tokens(2, 8), tokens(3, 4)
    kept = engine.ask(first, 2).tokens[:1]
    right = engine.ask([*first, *kept, *then], 1).tokens
    assert engine.reset()
    engine.send("other", tokens(1, 63), 4)
    engine.inside(f"{__name__}:part", "session", first, 2)
    answered = engine.inside(f"{__name__}:steps", 20)
    assert answered["session"][:1] == kept
    engine.inside(f"{__name__}:part", "session", then, 1)
    got = engine.inside(f"{__name__}:steps", 50).get("session", [])
    yield Seen("tokens of the second part", got, right)


@alone(
    "full",
    {"max_model_len": 192, "num_gpu_blocks_override": 7},
    named=("step_makes_progress",),
)
def waiting_sessions_hold_on(engine: Engine) -> Iterator[Seen]:
    """Two sessions hold all blocks, and each waits for one more. There is room for the second part
    of one of them."""
    first = {"one": tokens(1, 96), "two": tokens(2, 96)}
    then = {"one": tokens(3, 32), "two": tokens(4, 32)}
    right = engine.ask(first["one"] + then["one"], 1).tokens
    assert engine.reset()
    for name, sent in first.items():
        engine.inside(f"{__name__}:part", name, sent, 1)
    assert set(engine.inside(f"{__name__}:steps", 5)) == set(first)
    for name, sent in then.items():
        engine.inside(f"{__name__}:part", name, sent, 1)
    got = engine.inside(f"{__name__}:steps", 200)
    yield Seen("sessions that are answered, of two", list(got), ["one"])
    yield Seen("tokens of the second part", got.get("one"), right)
