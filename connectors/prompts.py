"""The numbers that an engine reports of a prompt: how many of its tokens came from which cache, and
how many were computed. Users see them for their requests, and operators as counters by source."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.model.facts.connectors import PromptReported


class Prompts:
    """The admissions of each request until its first output, as `(local, external)`: the numbers of
    tokens from each cache."""

    def __init__(self, prompts: Mapping[str, str]) -> None:
        self._prompts = prompts
        self._tokens: dict[str, int] = {}
        self._admitted: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._loading: set[str] = set()
        self._reported: set[str] = set()
        self._failed: set[str] = set()

    def promise(self, request: str, start: int, tokens: int) -> None:
        """Record that a request is admitted with a load."""
        self._admitted[request].append((start, tokens))
        self._loading.add(request)

    def begin(self, request: str, prompt_tokens: int, computed: int) -> None:
        """Record that a step has a request for the first time, or again after a preemption;
        `computed` tokens need no step any more. The prompt may be one token shorter than it was
        sent: with Mamba layers, NIXL leaves the last token to D."""
        self._tokens[request] = max(prompt_tokens, len(self._prompts[request]) - 1)
        if request not in self._loading:
            self._admitted[request].append((computed, 0))
        self._loading.discard(request)

    def fail(self, request: str) -> None:
        """Record that the load of a request has failed, so that it begins with fewer tokens than
        were promised."""
        self._failed.add(request)

    def reported(self, output: Any) -> Iterator[PromptReported]:
        """The numbers that the output of a request reports of its prompt. Only its first output has
        them; from July 2026 on they are an object of their own."""
        name = output.request_id
        if name in self._reported or name in self._failed:
            return
        tokens = self._tokens.get(name, 0)
        if (stats := getattr(output, "prefill_stats", None)) is not None:
            parts = stats.num_local_cached_tokens, stats.num_external_cached_tokens
            computed = stats.num_computed_tokens
        elif hasattr(output, "num_external_computed_tokens"):
            cached, external = output.num_cached_tokens, output.num_external_computed_tokens
            parts, computed = (cached - external, external), tokens - cached
        else:
            return
        self._reported.add(name)
        if admitted := self._admitted.pop(name, []):
            yield PromptReported(name, tokens, *parts, computed, tuple(admitted))
