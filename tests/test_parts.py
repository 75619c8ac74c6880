"""The rule of what is accounting: by folders, and by what code uses."""

from pathlib import Path
from typing import Any

import pytest

from kvproof.gate.source.changes import ChangedFunction
from tests.packages import between

CONNECTOR = """
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1


class Nowhere(KVConnectorBase_V1):
    def request_finished(self, request):
        return {number}


def helper():
    return {number}
"""
"""A connector that nobody here has seen."""

RUNNER = """
class Runner:
    def update(self, output):
        self.tables.append(output.new_block_ids, {number})

    def sample(self, logits):
        return logits + {number}
"""


def placed(tmp_path: Path, file: str, text: str) -> dict[str, ChangedFunction]:
    """The changed functions of a file whose number changes, by name."""
    pair = ({file: text.replace("{number}", number)} for number in "12")
    changes = between(tmp_path, *pair)
    return {each.name: each for each in (*changes.accounting, *changes.others)}


@pytest.mark.parametrize(
    "file",
    [
        "distributed/kv_transfer/kv_connector/v1/nowhere_connector.py",
        "distributed/nowhere/connector.py",
        "plugins/cache.py",
        "model_executor/layers/nowhere.py",
    ],
)
def test_a_new_connector_is_accounting_wherever_it_lies(tmp_path: Path, file: str) -> None:
    found = placed(tmp_path, file, CONNECTOR)
    assert {each.part for each in found.values()} == {"KV connectors"}
    assert {*found} == {"Nowhere.request_finished", "helper"}
    assert not any(each.called for each in found.values())


def test_what_a_driven_connector_uses_may_be_called(tmp_path: Path) -> None:
    v1 = "distributed/kv_transfer/kv_connector/v1"
    uses = f"from vllm.{v1.replace('/', '.')}.tool import used\n\ndef f():\n    return used()\n"
    tool = "def used():\n    return {number}\n\ndef other():\n    return {number}\n"
    files = {f"{v1}/offloading_connector.py": uses, f"{v1}/tool.py": tool}
    sides = ({k: v.replace("{number}", n) for k, v in files.items()} for n in "12")
    found = {each.name: each.called for each in between(tmp_path, *sides).accounting}
    assert found == {"used": True, "other": False}


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("distributed/kv_transfer/kv_connector/v1/mooncake/store/data.py", "KV connectors"),
        ("distributed/kv_transfer/kv_connector/v1/nixl/worker.py", "the NIXL connector"),
        ("distributed/ec_transfer/ec_connector/base.py", "connectors of the encoder cache"),
        ("v1/simple_kv_offload/manager.py", "KV offloading"),
        ("v1/core/encoder_cache_manager.py", "the encoder cache"),
        ("v1/worker/gpu/block_table.py", "the block tables of the worker"),
        ("v1/kv_cache_interface.py", "start-up sizing"),
        ("v1/engine/core.py", "the loop of the engine"),
        ("v1/core/sched/new_scheduler.py", "the scheduler and the block pool"),
        ("v1/engine/detokenizer.py", ""),
        ("model_executor/models/llama.py", ""),
    ],
)
def test_a_file_belongs_to_a_part_by_its_folder(tmp_path: Path, file: str, part: str) -> None:
    [found] = placed(tmp_path, file, "def f():\n    return {number}\n").values()
    assert found.part == part
    assert found.why


def test_a_function_belongs_by_what_it_uses_and_its_neighbour_does_not(tmp_path: Path) -> None:
    found = placed(tmp_path, "v1/worker/some_runner.py", RUNNER)
    assert (found["Runner.update"].part, found["Runner.update"].why) == (
        "the scheduler and the block pool",
        "uses new_block_ids",
    )
    assert found["Runner.sample"].part == ""


@pytest.mark.parametrize("file", ["v1/attention/backends/x.py", "model_executor/layers/x.py"])
def test_kernels_and_models_only_read_block_tables(tmp_path: Path, file: str) -> None:
    text = "def forward(block_table):\n    return block_table[{number}]\n"
    [found] = placed(tmp_path, file, text).values()
    assert found.part == ""


@pytest.mark.parametrize("file", ["v1/simple_kv_offload/manager.py", "v1/core/block.py"])
def test_text_for_people_is_no_accounting(tmp_path: Path, file: str) -> None:
    text = "class Block:\n    def __repr__(self):\n        return '{number}'\n"
    [found] = placed(tmp_path, file, text).values()
    assert found.part == ""


def test_a_file_of_many_is_judged_by_its_content(tmp_path: Path) -> None:
    """Also where so many files differ that those outside are not read function by function."""
    more: dict[str, Any] = {f"models/m{n}.py": "x = {number}\n" for n in range(70)}
    files = {**more, "plugins/cache.py": CONNECTOR, "v1/worker/r.py": RUNNER}
    sides = ({k: v.replace("{number}", n) for k, v in files.items()} for n in "12")
    changes = between(tmp_path, *sides)
    assert {each.name for each in changes.accounting} == {
        *("Nowhere.request_finished", "helper", "Runner.update")
    }


POOL = """
class Pool:
    def free(self, blocks):
        {call}
        return {number}
{more}
"""

MORE = """
    def primitive(self):
        return self.helper()

    def helper(self):
        return 1
"""


@pytest.mark.parametrize(
    ("call", "outside"),
    [
        ("pass", {"Pool.primitive", "Pool.helper"}),
        ("self.primitive()", set()),
        ("getattr(self, 'primitive')()", set()),
        ("self.helper()", {"Pool.primitive"}),
    ],
)
def test_a_new_function_that_nothing_names_is_outside(
    tmp_path: Path, call: str, outside: set[str]
) -> None:
    """It cannot run: a pull request that only prepares another one stays green."""
    before = POOL.replace("{call}", call).replace("{more}", "").replace("{number}", "1")
    after = POOL.replace("{call}", call).replace("{more}", MORE).replace("{number}", "2")
    changes = between(tmp_path, {"v1/core/pool.py": before}, {"v1/core/pool.py": after})
    assert {each.name for each in changes.others} == outside
    assert {each.name for each in changes.accounting} == (
        {"Pool.free", "Pool.primitive", "Pool.helper"} - outside
    )
    assert all(each.why == "it is new, and nothing of head names it" for each in changes.others)
