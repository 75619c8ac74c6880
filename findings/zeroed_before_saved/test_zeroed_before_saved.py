"""vLLM 0.32.0, Model Runner V2: a step zeroes and copies blocks before the connector is notified,
so a save in the background that still reads them saves zeros.

`KVConnectorBase_V1.handle_preemptions` is called "BEFORE they are overwritten": OffloadingConnector
and SimpleCPUOffloadConnector wait there for the copies that read blocks which the step uses anew.
`GPUModelRunner.execute_model` of Model Runner V2 calls `update_requests` first, which zeroes the
new blocks and copies blocks of partial hits; the connector is notified in `pre_forward`.

Here `execute_model`, `update_requests` and `ActiveKVConnector` are the real ones. The connector
copies one block in the background, and the kernel that zeroes (Triton) is replaced by one of torch.
The step has no tokens, so that no model is needed: one with tokens begins with the same calls.
"""

from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch
from vllm.config import DeviceConfig, VllmConfig
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.gpu.kv_connector import ActiveKVConnector
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

FAILS_WITH = "the connector saves what the step wrote over"

BLOCK, NUM_BLOCKS = 3, 8


class Metadata(KVConnectorMetadata):  # type: ignore[misc]
    """The connector's part of a step."""


def make_connector(cache: torch.Tensor, saved: list[float]) -> Any:
    """Make a connector that copies a block in the background: at the latest when it must wait."""
    connector = create_autospec(KVConnectorBase_V1, instance=True)

    def wait(_metadata: KVConnectorMetadata) -> None:
        if not saved:
            saved.extend(cache[BLOCK].tolist())

    connector.handle_preemptions.side_effect = wait
    connector.get_finished.return_value = (None, None)
    return connector


def make_runner(cache: torch.Tensor, connector: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what `execute_model` needs of a model runner for a step without tokens."""
    monkeypatch.setattr(kv_transfer_state, "_KV_CONNECTOR_AGENT", connector)

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def zero(blocks: list[int]) -> None:
        cache[blocks] = 0.0

    numbers = SimpleNamespace(np=torch.zeros(4, dtype=torch.int32).numpy())
    runner = SimpleNamespace(
        **dict.fromkeys(
            ("update_pp_decode_requests", "finish_requests", "free_states", "add_requests"), nothing
        ),
        block_tables=SimpleNamespace(apply_staged_writes=nothing),
        req_states=SimpleNamespace(
            num_computed_tokens_np=numbers.np,
            prefill_len=numbers,
            num_computed_prefill_tokens=numbers.np.copy(),
        ),
        kv_block_zeroer=SimpleNamespace(zero_block_ids=zero),
        kv_connector=ActiveKVConnector(
            VllmConfig(device_config=DeviceConfig("cpu")), {"layer0": cache}
        ),
        aux_output_connector=None,
        encoder_cache=None,
        _merge_ec_connector_no_forward=lambda _step, output: output,
    )
    runner.update_requests = lambda step: GPUModelRunner.update_requests(runner, step)
    return runner


def test_what_is_saved_is_what_the_block_held(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = torch.ones(NUM_BLOCKS, 4)
    saved: list[float] = []
    runner = make_runner(cache, make_connector(cache, saved), monkeypatch)
    step = SchedulerOutput.make_empty()
    # The block was freed while it is saved, and another request takes it in this step.
    step.new_block_ids_to_zero = [BLOCK]
    step.kv_connector_metadata = Metadata()
    GPUModelRunner.execute_model(runner, step)
    assert cache[BLOCK].tolist() == [0.0] * 4, "the step zeroes its new block"
    assert saved == [1.0] * 4, f"the connector saves what the step wrote over: {saved}"
