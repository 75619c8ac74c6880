"""What is done in an engine's process. Each function gets its LLM, None before there is one."""

import ast
import importlib.util
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.finding_diffs import diff_of, files_of, offered, patched, sources
from tests.findings import FOLDER, REPORTED_WITH

_patches = pytest.MonkeyPatch()


def patch(_llm: Any, finding: str) -> None:
    """Apply the diff of a finding's page, or the patch of its reproducer where it has none."""
    page = REPORTED_WITH.get(finding, finding)
    if offered(page):
        apply_diff(diff_of(page))
        return
    path = FOLDER / finding / f"test_{finding}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    reproducer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reproducer)
    reproducer.patch(_patches)


def apply_diff(diff: str) -> None:
    """Put the imports and the methods that a diff changes into the vLLM of this process."""
    with tempfile.TemporaryDirectory() as folder:
        patched(diff, Path(folder))
        for file in files_of(diff):
            module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            old, new = (ast.parse((root / file).read_text()) for root in (sources(), Path(folder)))
            known = {(owner, ast.dump(node)) for owner, node in _parts(old)}
            imports = (node for node in new.body if isinstance(node, ast.ImportFrom))
            future = [node for node in imports if node.module == "__future__"]
            for owner, node in _parts(new):
                if (owner, ast.dump(node)) in known:
                    continue
                if isinstance(node, ast.FunctionDef):
                    kind = getattr(module, owner)
                    _patches.setattr(kind, node.name, _made(node, kind, future), raising=False)
                else:
                    exec(compile(ast.Module([node], []), file, "exec"), vars(module))


def _parts(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The imports of a module, and the methods with the name of their class."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (node.name, each) for each in node.body if isinstance(each, ast.FunctionDef)
            )


def _made(node: ast.FunctionDef, kind: type, future: list[ast.ImportFrom]) -> Any:
    """The method of a class. A `super()` in it needs the name `__class__`."""
    [make] = ast.parse("def make(__class__): ...").body
    assert isinstance(make, ast.FunctionDef)
    make.body = [node, ast.Return(ast.Name(node.name, ast.Load()))]
    whole = ast.fix_missing_locations(ast.Module([*future, make], []))
    made: dict[str, Any] = {}
    exec(compile(whole, kind.__module__, "exec"), vars(sys.modules[kind.__module__]), made)
    return made["make"](kind)


_counted: Counter[str] = Counter()
"""How often each invariant had been found violated at the last call of `found`."""


def unpatch(_llm: Any) -> None:
    """vLLM as released again."""
    _patches.undo()


def found(_llm: Any) -> list[str]:
    """The invariants that the sanitizer has found violated since the last call."""
    from kvproof.watch import switch

    assert switch._watching is not None
    counts = switch._watching.counts.copy()
    new = counts - _counted
    _counted.update(new)
    return sorted(new)


def hybrids_over_nixl(_llm: Any) -> None:
    """NIXL needs this layout of Mamba states, and on the CPU a prefill checkpoint of Mamba 2 ends
    in an index out of bounds."""
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    os.environ["VLLM_SSM_CONV_STATE_LAYOUT"] = "DS"
    MambaMixer2.get_kv_cache_spec = super(MambaMixer2, MambaMixer2).get_kv_cache_spec


def overlapping_steps(_llm: Any) -> None:
    """Let steps overlap as on a GPU: the CPU's platform switches this off. Its streams and events
    do nothing, because what is computed on the CPU is there at once."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def keep(config: Any) -> None:
        check(config)
        config.scheduler_config.async_scheduling = True

    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    CpuPlatform.check_and_update_config = staticmethod(keep)
    torch.cuda.Event = lambda *_, **__: event
    torch.cuda.current_stream = lambda *_: None
    torch.cuda.stream = lambda *_: nullcontext()


def scheduler(llm: Any) -> Any:
    """The engine's scheduler."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def free_blocks(llm: Any) -> int:
    """The number of free blocks."""
    return int(scheduler(llm).kv_cache_manager.block_pool.get_num_free_blocks())


def statuses(llm: Any) -> dict[str, str]:
    """The requests that are not finished, with their status."""
    requests = scheduler(llm).requests.values()
    return {each.request_id.split("-")[0]: each.status.name for each in requests}


def metric(llm: Any, name: str) -> int:
    """A counter of vLLM's metrics."""
    return sum(each.value for each in llm.get_metrics() if each.name == f"vllm:{name}")


def idle(llm: Any, seconds: float) -> None:
    """Take steps without a request, as a server does while a connector has work."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        llm.llm_engine.engine_core.get_output()
        time.sleep(0.01)


def groups(llm: Any) -> list[tuple[str, int]]:
    """The kind and the block size of each cache group."""
    specs = [each.kv_cache_spec for each in scheduler(llm).kv_cache_config.kv_cache_groups]
    return [(type(spec).__name__, spec.block_size) for spec in specs]


def evict_one(llm: Any) -> int:
    """Short requests at the same time, until a cached block is evicted. Returns their number."""
    from vllm import SamplingParams

    pool = scheduler(llm).kv_cache_manager.block_pool
    names: list[str] = []

    def cached() -> int:
        return sum(1 for block in pool.blocks if block.block_hash is not None)

    most = cached()
    while cached() == most:
        names.append(f"short{len(names)}")
        params = SamplingParams(max_tokens=30, ignore_eos=True, detokenize=False)
        llm.llm_engine.add_request(names[-1], {"prompt_token_ids": [3 + len(names)]}, params)
        llm.llm_engine.step()
        assert names[-1] in {name for name, status in statuses(llm).items() if status == "RUNNING"}
    llm.llm_engine.abort_request(names)
    llm.llm_engine.step()
    return len(names)


def make(_llm: Any, model: str) -> None:
    """Make the folder of a model, which is a path in the working directory."""
    from tests.engine.models import folder

    folder(model, Path.cwd())
