"""Structured output without a tokenizer: fake grammars, which are compiled, or fail, when the plan
says so. A grammar allows every token, or only one, until the token that ends the answer. The mask
that it makes says how many tokens it has accepted. Where requests think first, a special token ends
their reasoning."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import Any

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from kvproof.live import adapt
from kvproof.live.step_output import END_ID, SAMPLED_ID
from kvproof.model import interruption

END_OF_REASONING = SAMPLED_ID + 1
"""The token that ends reasoning. No prompt has it."""

FAILS = "fails"
"""The words of a grammar that cannot be compiled."""

REJECTS = "rejects"
"""The words of a grammar that allows one token: it rejects all tokens sampled after it, with or
without a mask."""


class CountingGrammar(StructuredOutputGrammar):  # type: ignore[misc]
    """The grammar of a request. It allows `most` tokens; None means any number."""

    def __init__(self, most: int | None) -> None:
        self.accepted, self.most = 0, most
        self.end: int | None = None

    def accept_tokens(self, _request: str, tokens: list[int]) -> bool:
        """Accept these tokens, as far as the grammar allows them."""
        allowed = self.validate_tokens(tokens)
        self.accepted += len(allowed)
        if END_ID in allowed:
            self.end = self.accepted
        return len(allowed) == len(tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The first tokens among these that the grammar allows."""
        if self.is_terminated():
            return []
        ends = tokens.index(END_ID) + 1 if END_ID in tokens else len(tokens)
        return tokens[: ends if self.most is None else min(ends, max(self.most - self.accepted, 0))]

    def rollback(self, num_tokens: int) -> None:
        """Undo the last tokens."""
        self.accepted -= num_tokens
        if self.end is not None and self.accepted < self.end:
            self.end = None

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Write the mask for the next token."""
        bitmask[batch_index, 0] = self.accepted

    def is_terminated(self) -> bool:
        """Whether the grammar has ended, with the answer."""
        return self.end is not None

    def reset(self) -> None:
        """Start again without tokens."""
        self.accepted, self.end = 0, None


class Reasoner:
    """A fake of the parser of reasoning, which vLLM makes for each request."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Make a parser; it needs no tokenizer."""

    def is_reasoning_end(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens contain the end of the reasoning."""
        return END_OF_REASONING in tokens

    def is_reasoning_end_streaming(self, _tokens: Sequence[int], new: Iterable[int]) -> bool:
        """Whether the new tokens contain the end of the reasoning."""
        return END_OF_REASONING in new


class Grammars:
    """A fake of the compiler of grammars and of its threads. A grammar is compiled by `compile`, or
    at once if `waits` is False for its request. With `thinks`, requests think first."""

    def __init__(self, waits: Callable[[str], bool], *, thinks: bool = False) -> None:
        self.waits, self.thinks = waits, thinks
        self.pending: dict[str, Callable[[], None]] = {}

    def install(self, manager: Any) -> None:
        """Put this compiler in the place of the backend that an engine chooses for its first
        request."""
        manager.backend = manager.executor = self
        if self.thinks and hasattr(manager, "reasoner_cls"):
            manager.reasoner_cls, manager.tokenizer = Reasoner, None
        elif self.thinks:  # older releases have one parser for all requests
            manager.reasoner = Reasoner()

    def compile_grammar(self, _kind: Any, words: str, *_: Any, **__: Any) -> CountingGrammar:
        """Make the grammar that these words describe."""
        if words == FAILS:
            raise ValueError("This grammar cannot be compiled")
        return CountingGrammar(1 if words == REJECTS else None)

    def allocate_token_bitmask(self, rows: int) -> Any:
        """Allocate the masks of a step."""
        return torch.zeros((rows, 1), dtype=torch.int32)

    def destroy(self) -> None:
        """Do nothing: no resource is open."""

    def submit(self, work: Callable[..., Any], request: Any) -> Future[Any]:
        """Submit the task of compiling the grammar of a request."""
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(work(request))
            except Exception as error:  # raised again where vLLM asks for the result
                interruption.check()
                result.set_exception(error.with_traceback(None))

        self.pending[request.request_id] = run
        if not self.waits(request.request_id):
            self.compile(request.request_id)
        return result

    def compile(self, name: str) -> None:
        """Compile the grammar of a request, if it waits for this."""
        self.pending.pop(name, lambda: None)()


def structured(words: str) -> dict[str, Any]:
    """The argument of `SamplingParams` by which a request asks for a grammar; no argument without
    words."""
    if not words:
        return {}
    params = adapt.named("StructuredOutputsParams")(grammar=words)
    params._backend = "xgrammar"  # which the front of an engine chooses
    return {"structured_outputs": params}


def known(
    masks: Any, drafts: Mapping[str, Sequence[int]], most: int
) -> dict[str, list[int | None]]:
    """For each request, the number of tokens that each of its masks takes into account, None for a
    mask that allows every token. A step has one mask for each draft token and one for the token
    after them. A request has at most `most` draft tokens; later releases always allocate masks for
    that number."""
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
