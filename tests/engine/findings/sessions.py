"""Streaming input: sessions that receive the parts of a prompt one after the other."""

from typing import Any


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
