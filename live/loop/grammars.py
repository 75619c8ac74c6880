"""Structured output without a tokenizer: grammars are compiled when the plan says so, or fail then.
A grammar allows every token, or one alone. The mask that it makes says how many tokens it has
accepted. Where requests think first, a token of its own ends their reasoning."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import Any

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from kvproof.live import adapt
from kvproof.live.step_output import SAMPLED_ID

END_OF_REASONING = SAMPLED_ID + 1
"""The token that ends reasoning. No prompt has it."""

FAILS = "fails"
"""A grammar that cannot be compiled."""

REJECTS = "rejects"
"""A grammar that allows one token: it rejects what is sampled after it, mask or not."""


class CountingGrammar(StructuredOutputGrammar):  # type: ignore[misc]
    """The grammar of a request. It allows `most` tokens; None says any number."""

    def __init__(self, most: int | None) -> None:
        self.accepted, self.most = 0, most

    def accept_tokens(self, _request: str, tokens: list[int]) -> bool:
        """The grammar goes on by these tokens, as far as it allows them."""
        allowed = self.validate_tokens(tokens)
        self.accepted += len(allowed)
        return len(allowed) == len(tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The first of these tokens, which it allows."""
        return tokens if self.most is None else tokens[: max(self.most - self.accepted, 0)]

    def rollback(self, num_tokens: int) -> None:
        """The last tokens are taken back."""
        self.accepted -= num_tokens

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """The mask for the next token."""
        bitmask[batch_index, 0] = self.accepted

    def is_terminated(self) -> bool:
        """It never ends by itself."""
        return False

    def reset(self) -> None:
        """It begins again."""
        self.accepted = 0


class Reasoner:
    """The parser of reasoning, which vLLM makes for each request."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """It needs no tokenizer."""

    def is_reasoning_end(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens have the end of the reasoning."""
        return END_OF_REASONING in tokens

    def is_reasoning_end_streaming(self, _tokens: Sequence[int], new: Iterable[int]) -> bool:
        """Whether the new tokens have it."""
        return END_OF_REASONING in new


class Grammars:
    """The compiler of grammars, and the threads that it works on: each is compiled by `compile`, or
    at once if `waits` is False for its request. With `thinks`, requests think first."""

    def __init__(self, waits: Callable[[str], bool], *, thinks: bool = False) -> None:
        self.waits, self.thinks = waits, thinks
        self.pending: dict[str, Callable[[], None]] = {}

    def install(self, manager: Any) -> None:
        """Take the place of the backend that an engine chooses for its first request."""
        manager.backend = manager.executor = self
        if self.thinks and hasattr(manager, "reasoner_cls"):
            manager.reasoner_cls, manager.tokenizer = Reasoner, None
        elif self.thinks:  # older releases have one parser for all requests
            manager.reasoner = Reasoner()

    def compile_grammar(self, _kind: Any, words: str, *_: Any, **__: Any) -> CountingGrammar:
        """A grammar of these words."""
        if words == FAILS:
            raise ValueError("This grammar cannot be compiled")
        return CountingGrammar(1 if words == REJECTS else None)

    def allocate_token_bitmask(self, rows: int) -> Any:
        """Room for the masks of a step."""
        return torch.zeros((rows, 1), dtype=torch.int32)

    def destroy(self) -> None:
        """Nothing is open."""

    def submit(self, work: Callable[..., Any], request: Any) -> Future[Any]:
        """A thread is to compile the grammar of a request."""
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(work(request))
            except ValueError as error:  # raised again where vLLM asks for the result
                result.set_exception(error.with_traceback(None))

        self.pending[request.request_id] = run
        if not self.waits(request.request_id):
            self.compile(request.request_id)
        return result

    def compile(self, name: str) -> None:
        """The grammar of a request is compiled, if it waits for this."""
        self.pending.pop(name, lambda: None)()


def structured(words: str) -> dict[str, Any]:
    """The argument of `SamplingParams` with which a request asks for a grammar; none without
    words."""
    if not words:
        return {}
    params = adapt.first(["vllm.sampling_params:StructuredOutputsParams"])(grammar=words)
    params._backend = "xgrammar"  # which the front of an engine chooses
    return {"structured_outputs": params}


def known(
    masks: Any, drafts: Mapping[str, Sequence[int]], most: int
) -> dict[str, list[int | None]]:
    """How many tokens each mask of each request knows, None for one that allows all. They are the
    masks of a step with these draft tokens, `most` for a request: there is one for each of them,
    and one for the token after them. In later releases a request has room for the masks of the most
    draft tokens."""
    if masks is None:
        return {}
    names, rows = masks.structured_output_request_ids, masks.grammar_bitmask
    counts = [1 + len(drafts.get(name, ())) for name in names]
    steps = counts if sum(counts) == len(rows) else [1 + most] * len(names)
    begins = accumulate(steps[:-1], initial=0)
    return {
        name: [None if row[0] < 0 else int(row[0]) for row in rows[begin : begin + count]]
        for name, begin, count in zip(names, begins, counts, strict=True)
    }
