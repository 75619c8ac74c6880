"""One episode: a plan is played on a real engine, and each fact is judged by the rules."""

import functools
import importlib
import importlib.util
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproof.connectors.contract.rule import Past
from kvproof.connectors.contract.rules import RULES, broken
from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.replaced import device
from kvproof.connectors.engine import Engine
from kvproof.connectors.facts import (
    Fact,
    Failed,
    Kept,
    LoadEnded,
    Matched,
    Promised,
    SendEnded,
)
from kvproof.connectors.memory import Memory
from kvproof.connectors.plan import (
    Abort,
    Action,
    Drain,
    Fail,
    Forget,
    Output,
    Pause,
    Plan,
    Reset,
    Resume,
    Step,
    Submit,
)
from kvproof.live.contract.features import KIT
from kvproof.live.contract_check import check
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding


@dataclass(frozen=True)
class Subject:
    """The connector under test: a name that vLLM has registered, or `module:Class`, and its
    `kv_connector_extra_config`. `keeps_prompts` says that it stores each whole block of a prompt
    that was computed, and forgets it only if what is behind it fails. `forgets` says that what is
    behind it may lose all that it has at any time, and fail: files in `{tmp}`, or a Mooncake
    store. With `images`, requests have images too."""

    name: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    keeps_prompts: bool = False
    forgets: bool = False
    images: bool = False

    def settings(self, folder: Path) -> dict[str, Any]:
        """The settings of `KVTransferConfig`. `{tmp}` in a text of `extra` is this folder."""
        module, colon, kind = self._place
        extra = _in_folder(dict(self.extra), str(folder))
        place = {"kv_connector_module_path": module} if colon else {}
        # Files in shared memory have this name.
        name = f"kvproof-{os.getpid()}"
        return {
            "kv_connector": kind,
            "kv_connector_extra_config": extra,
            "engine_id": name,
            **place,
        }

    @property
    def _place(self) -> tuple[str, str, str]:
        """The module, a colon, and the class; without a module, the class alone."""
        module, colon, kind = self.name.rpartition(":")
        if module.endswith(".py"):
            return _loaded(Path(module)), colon, kind
        return module, colon, kind

    @property
    def kind(self) -> type:
        """The class. Raises UsageError if there is none of this name, and AdapterDrift if this vLLM
        lacks something that the kit needs."""
        check().require([KIT])
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

        module, colon, name = self._place
        try:
            if colon:
                found: type = getattr(importlib.import_module(module), name)
            else:
                found = KVConnectorFactory.get_connector_class_by_name(name)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(
                f"There is no connector {self.name!r} ({error}). Use a name that vLLM has "
                "registered, module:Class, or FILE.py:Class."
            ) from error
        if not (isinstance(found, type) and issubclass(found, KVConnectorBase_V1)):
            raise UsageError(
                f"{self.name} is no KVConnectorBase_V1. Use a class that extends vLLM's base class."
            )
        return found

    @property
    def supports_groups(self) -> bool:
        """Whether it supports several cache groups (`SupportsHMA`; of several connectors, all)."""
        from vllm.config import KVTransferConfig

        from kvproof.live.build import supports_groups

        self.kind  # noqa: B018 (raises UsageError)
        settings = self.settings(Path())
        return supports_groups(KVTransferConfig(kv_role="kv_both", **settings))


def _in_folder(value: Any, folder: str) -> Any:
    """A copy of a JSON value, with this folder for `{tmp}` in its texts."""
    if isinstance(value, str):
        return value.replace("{tmp}", folder)
    if isinstance(value, Mapping):
        return {key: _in_folder(each, folder) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_in_folder(each, folder) for each in value]
    return value


@functools.cache
def _loaded(path: Path) -> str:
    """Import a file as a module. Returns the module's name."""
    name = f"kvproof_subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"There is no file {shown(path)}. Use the path of a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"{shown(path)} cannot be imported ({type(error).__name__}: {error}). Use a file that "
            "Python imports without an error."
        ) from error
    return name


COUNTED: dict[type, str] = {
    Matched: "answers",
    Promised: "loads",
    LoadEnded: "reports",
    SendEnded: "reports",
    Failed: "failures",
    Kept: "kept requests",
}
"""What a fact is counted as (`Rule.counts`)."""

Note = Callable[[Engine, int, list[Fact]], bool]
"""Is told the engine after an action, the number of the action, and the facts of it. Returns
whether the episode goes on although a rule is broken."""


@dataclass(frozen=True)
class Result:
    """An episode's end. `findings` are those of the first action that broke a rule, the gravest
    first; `at` is the number of that action, from 1 on (after the last one: the final drain).
    `steps` counts the worker's steps, `judged` what was compared."""

    findings: tuple[Finding, ...]
    at: int
    steps: int
    judged: Counter[str]


def play(subject: Subject, plan: Plan, note: Note | None = None) -> Result:
    """Play a plan on a new engine with a new connector. `note` is called after each action. Raises
    AdapterDrift if this vLLM lacks something that the kit needs, and names it."""
    check().require([KIT])
    past = Past()
    with tempfile.TemporaryDirectory(prefix="kvproof-connector-") as folder:
        settings = subject.settings(Path(folder))
        clock, memory = Clock(plan.copies), Memory(Path(folder))
        with (
            device(clock),
            closing(Engine(plan, settings, clock, subject.keeps_prompts)) as engine,
        ):
            judged = engine.owners.judged
            for at, action in enumerate((*plan.actions, Drain()), 1):
                _act(engine, memory, action)
                if at > len(plan.actions):
                    engine.end()
                facts = engine.take_facts()
                goes_on = note is not None and note(engine, at, facts)
                judged.update(COUNTED[type(f)] for f in facts if type(f) in COUNTED)
                findings = list(broken(facts, past))
                if engine.dead or (findings and not goes_on):
                    findings.sort(key=lambda f: RULES[f.invariant].severity)
                    return Result(tuple(findings), at, engine.steps, judged)
            return Result((), len(plan.actions) + 1, engine.steps, judged)


def _act(engine: Engine, memory: Memory, action: Action) -> None:
    if isinstance(action, Submit):
        name = f"r{engine.arrived}"
        engine.submit(name, action)
    elif isinstance(action, Step):
        for _ in range(action.times):
            engine.step()
    elif isinstance(action, Output):
        engine.deliver()
    elif isinstance(action, Abort) and engine.running:
        engine.abort(engine.running[action.which % len(engine.running)])
    elif isinstance(action, Reset):
        engine.reset(action.running, action.connector)
    elif isinstance(action, Pause):
        engine.pause(action.new)
    elif isinstance(action, Resume):
        engine.resume()
    elif isinstance(action, Drain):
        engine.drain()
    elif isinstance(action, Forget):
        memory.forget()
        engine.loses()
    elif isinstance(action, Fail):
        memory.fail(action.times, action.raises)
        engine.loses()
