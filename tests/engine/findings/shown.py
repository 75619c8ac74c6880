"""A finding on real engines, and the engines of one run of it."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engine.pair import pair, transfer
from tests.engine.process import OPTIONS, Answer, Output, Process
from tests.engine.workloads import tokens

INSIDE = "tests.engine.findings.inside"

ROLES = {"P": "kv_producer", "D": "kv_consumer"}
"""P computes prompts, and D loads them over NIXL."""

PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}
"""The transfer parameters with which a router sends a prompt to P."""

NOT_SERVED = "not served"

SERVED_S = 120.0
"""A request that has no answer by then has none. An idle machine answers in a second."""


class Engine:
    """One engine of a run."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.count = 0

    def take(self, *actions: list[Any]) -> Answer:
        """Take actions, none of which may raise."""
        return self.process.served(*actions)

    def inside(self, function: str, *args: Any) -> Any:
        """The result of a function in the engine's process."""
        place = function if ":" in function else f"{INSIDE}:{function}"
        return self.take(["call", place, *args]).results[0]

    def ask(
        self,
        prompt: list[int],
        answer: int = 6,
        *,
        transfer: dict[str, Any] | None = None,
        limit_s: float = SERVED_S,
        **options: Any,
    ) -> Output:
        """The answer to a prompt: no tokens, and the reason, if there is none in time or the engine
        dies."""
        self.count += 1
        return self.answer(
            self.send(f"r{self.count}", prompt, answer, transfer, **options), limit_s
        )

    def send(
        self,
        name: str,
        prompt: list[int],
        answer: int,
        transfer: dict[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """A request arrives. Returns its name."""
        if transfer is not None:
            options["extra_args"] = {"kv_transfer_params": transfer}
        self.take(["add", name, prompt, options | {"max_tokens": answer}])
        return name

    def answer(self, name: str, limit_s: float = SERVED_S) -> Output:
        """Take steps until a request is answered; see `ask`."""
        ends = time.monotonic() + limit_s
        reason = None
        while reason is None and time.monotonic() < ends:
            served = self.process.take(["steps", 100])
            if name in served.outputs:
                return served.outputs[name]
            reason = served.error
        return Output([], 0, reason or NOT_SERVED, None)

    def reset(self) -> bool:
        """Reset the prefix cache. Returns whether no request holds a block of it."""
        return bool(self.take(["reset"]).results[0])

    def fill(self, count: int, times: int) -> None:
        """Compute other prompts, so that all blocks hold their content, and cache nothing."""
        for number in range(times):
            self.ask(tokens(1000 + number, count), 1)
        assert self.reset()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop its process for a while."""
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


Engines = Mapping[str, Engine]

Built = tuple[str, dict[str, Any]]
"""The model and the options of an engine."""


@dataclass(frozen=True)
class Seen:
    """What a user got, and what is right: answers, numbers, or the reason of none. `wrong` is
    whether they differ on released vLLM."""

    what: str
    got: Any
    right: Any
    wrong: bool = True


Look = Callable[..., Iterator[Seen]]


@dataclass(frozen=True)
class Shown:
    """How a finding is shown. `look` takes the engines, and `engines` has the model and options of
    each; two engines P and D are connected. `before` are actions before an engine is built.
    `named` are the invariants that the
    sanitizer finds violated, `beside` those of another finding, which it finds with the patch, too.
    `of_patch` are those that the patch itself violates, because it is short. `fresh` is whether
    vLLM cannot build a second engine in a process that had one of these."""

    look: Look
    engines: dict[str, Built]
    named: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    of_patch: tuple[str, ...] = ()
    before: tuple[list[Any], ...] = ()
    transfer: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False


SHOWN: dict[str, Shown] = {}
"""How each finding is shown, by its name. The modules of this folder fill it."""


def alone(model: str, options: dict[str, Any], **how: Any) -> Callable[[Look], Look]:
    """Show the finding that a function has its name from, on one engine."""
    return _shown({"E": (model, options)}, how)


def between(p: Built, d: Built, **how: Any) -> Callable[[Look], Look]:
    """Show the finding that a function has its name from, on P and D."""
    return _shown({"P": p, "D": d}, how)


def _shown(engines: dict[str, Built], how: dict[str, Any]) -> Callable[[Look], Look]:
    def note(look: Look) -> Look:
        SHOWN[look.__name__] = Shown(look, engines, **how)
        return look

    return note


@dataclass(frozen=True)
class Arm:
    """What was seen on released vLLM, or with the patch, and what the sanitizer has found."""

    seen: list[Seen]
    found: set[str]


def arms(shown: Shown, finding: str, models: Path) -> Iterator[Arm]:
    """The engines on vLLM as released, and then with the finding's patch, under the sanitizer."""
    patch = ["call", f"{INSIDE}:patch", finding]
    if shown.fresh:
        with processes(shown, models) as engines:
            yield arm(shown, engines, [*shown.before])
        with processes(shown, models) as engines:
            yield arm(shown, engines, [*shown.before, patch])
    else:
        with processes(shown, models) as engines:
            yield arm(shown, engines, [*shown.before])
            yield arm(shown, engines, [patch])


def arm(shown: Shown, engines: Engines, actions: list[list[Any]]) -> Arm:
    """Take actions in all processes, build the engines, and look."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda name: build(shown, name, engines[name], actions), engines))
    seen = list(shown.look(*engines.values()))
    return Arm(seen, {each for e in engines.values() for each in e.inside("found")})


@contextmanager
def processes(shown: Shown, models: Path, mode: str = "record") -> Iterator[Engines]:
    """The processes of the engines."""
    with ExitStack() as stack:
        if len(shown.engines) > 1:
            started = stack.enter_context(pair(models, mode))
        else:
            started = (stack.enter_context(Process(models, mode=mode)),)
        names = zip(shown.engines, started, strict=True)
        yield {name: Engine(process) for name, process in names}


def build(shown: Shown, name: str, engine: Engine, actions: Sequence[list[Any]]) -> None:
    """Take actions, and build an engine in its process."""
    model, options = shown.engines[name]
    options = OPTIONS | options
    if len(shown.engines) > 1:
        options["kv_transfer_config"] = side(name, shown.transfer)
    engine.take(*actions, ["engine", model, options])


def side(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The connector of P or D."""
    config = transfer(ROLES[name]) | {"engine_id": name} | changes
    return config | {
        "kv_connector_extra_config": {
            "backends": ["UCX"],
            **changes.get("kv_connector_extra_config", {}),
        }
    }
