"""The process of one real engine: `python -m tests.engine.runner FOLDER`, FOLDER for the models.

It reads lines of JSON, each a list of actions, and answers each with a line. An action is its name
and arguments, see `Runner`. Standard output of vLLM goes to standard error, as its logs do.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engine.models import folder


class Runner:
    """The actions. Each is a method, whose result goes into the answer if it has one."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.llm: Any = None
        self.outputs: dict[str, Any] = {}
        self.tokens: dict[str, int] = {}

    def engine(self, model: str, options: dict[str, Any]) -> None:
        """Build an engine, in the place of the one before."""
        from vllm import LLM
        from vllm.distributed import cleanup_dist_env_and_memory

        if self.llm is not None:
            self.close()
            cleanup_dist_env_and_memory()
        path = folder(model, self.parent)
        self.llm = LLM(model=str(path), skip_tokenizer_init=True, enforce_eager=True, **options)

    def close(self) -> None:
        """End the engine."""
        self.llm.llm_engine.engine_core.shutdown(timeout=60)  # then its process is killed
        self.llm = None

    def add(self, name: str, prompt: list[int], options: dict[str, Any]) -> None:
        """A request arrives. Options are `priority` and those of SamplingParams."""
        from vllm import SamplingParams

        values = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "detokenize": False}
        values |= options
        priority = values.pop("priority", 0)
        params = SamplingParams(**values)
        inputs = {"prompt_token_ids": prompt}
        self.llm.llm_engine.add_request(name, inputs, params, priority=priority)
        self.tokens[name] = 0

    def steps(self, count: int) -> None:
        """Take so many steps, or as many as there is work for."""
        for _ in range(count):
            if not self.llm.llm_engine.has_unfinished_requests():
                return
            self._step()

    def run(self) -> None:
        """Take steps until all requests are answered."""
        while self.llm.llm_engine.has_unfinished_requests():
            self._step()

    def until(self, name: str, tokens: int) -> None:
        """Take steps until a request has so many tokens of its answer."""
        while self.tokens[name] < tokens:
            self._step()

    def abort(self, *names: str) -> None:
        """Abort requests."""
        self.llm.llm_engine.abort_request(list(names))

    def reset(self, running: str = "") -> bool:
        """Reset the prefix cache; with "running", preempt the requests that run before. Returns
        whether it was done."""
        return bool(self.llm.llm_engine.reset_prefix_cache(running == "running"))

    def preempted(self) -> int:
        """How many requests were preempted so far."""
        return self._metric("vllm:num_preemptions")

    def loaded(self) -> int:
        """How many tokens a connector has loaded so far."""
        return self._metric("vllm:external_prefix_cache_hits")

    def _metric(self, name: str) -> int:
        metrics = self.llm.llm_engine.get_metrics()
        return sum(each.value for each in metrics if each.name == name)

    def call(self, place: str, *args: Any) -> Any:
        """Call `module:function` with the LLM, None before there is one, and these arguments."""
        module, _, name = place.partition(":")
        return getattr(importlib.import_module(module), name)(self.llm, *args)

    def _step(self) -> None:
        for output in self.llm.llm_engine.step():
            [answer] = output.outputs
            name = output.request_id
            self.tokens[name] = len(answer.token_ids)
            if output.finished:
                self.outputs[name] = {
                    "tokens": list(answer.token_ids),
                    "cached": output.num_cached_tokens,
                    "reason": answer.finish_reason,
                    "transfer": output.kv_transfer_params,
                }

    def take(self, actions: list[list[Any]]) -> dict[str, Any]:
        """Take actions one after the other, until one raises."""
        self.outputs, results, error = {}, [], None
        began = time.perf_counter()
        try:
            for action, *args in actions:
                results.append(getattr(self, action)(*args))
        except Exception as raised:
            traceback.print_exc()
            error = f"{type(raised).__name__}: {raised}"
        seconds = time.perf_counter() - began
        return {"outputs": self.outputs, "results": results, "error": error, "seconds": seconds}


def lines() -> Iterator[dict[str, Any]]:
    """The answers to the lines of standard input."""
    runner = Runner(Path(sys.argv[1]))
    for line in sys.stdin:
        yield runner.take(json.loads(line))
    if runner.llm is not None:
        runner.close()


def main() -> None:
    """Answer until standard input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for answer in lines():
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
