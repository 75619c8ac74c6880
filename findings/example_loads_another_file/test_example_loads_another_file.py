"""vLLM 0.32.0, ExampleConnector: it looks up one file and loads another, which may not exist: the
engine dies of FileNotFoundError.

`get_num_new_matched_tokens` looks for the file of the prompt's whole blocks without its last token.
The load takes the file of the whole blocks of all tokens of the step but one. These differ for a
prompt of whole blocks and one token, and for a request that was preempted after its answer had
passed the end of a block.

Here the scheduler and the connector's scheduler side are the real ones; what the worker saves is
written by hand: the folder of a file.

Run: pytest --noconftest test_example_loads_another_file.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import (
    ExampleConnector,
    ExampleConnectorMetadata,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the worker loads a file that nobody has saved"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = BLOCK_SIZE + 4


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded is what was looked up: the whole blocks of the prompt without its last
    token."""
    build, add = ExampleConnector.build_connector_meta, ExampleConnectorMetadata.add_request
    loaded: list[Request] = []

    def known(self: Any, scheduler_output: Any) -> Any:
        loaded[:] = self._requests_need_load.values()
        return build(self, scheduler_output)

    def looked_up(self: Any, token_ids: list[int], block_ids: list[int], **more: Any) -> None:
        if not more["is_store"]:
            ids = list(token_ids)
            request = next(r for r in loaded if list(r.all_token_ids)[: len(ids)] == ids)
            token_ids = ids[: request.num_prompt_tokens - 1]
        add(self, token_ids, block_ids, **more)

    monkeypatch.setattr(ExampleConnector, "build_connector_meta", known)
    monkeypatch.setattr(ExampleConnectorMetadata, "add_request", looked_up)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with files in this folder."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=256
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_model_len=256,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="ExampleConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"shared_storage_path": str(folder / "store")},
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, num_prompt: int) -> Request:
    """A request whose prompt begins as that of the others."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(num_prompt)),
        sampling_params=SamplingParams(max_tokens=40, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler) -> list[int]:
    """A step, in which the worker saves and loads what the metadata name. Returns the numbers of
    the tokens that it loads."""
    step = scheduler.schedule()
    loads = []
    for each in step.kv_connector_metadata.requests:
        tokens, folder = each.token_ids, scheduler.connector._generate_foldername_debug
        if not each.is_store:
            loads.append(len(tokens))
            assert Path(folder(tokens, [])).exists(), (
                "the worker loads a file that nobody has saved: that of the first "
                f"{len(tokens)} tokens"
            )
        folder(tokens, [], create_folder=each.is_store)
    names = list(step.num_scheduled_tokens)
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
    )
    scheduler.update_from_output(step, ended)
    return loads


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    """It runs a request, whose first block was saved."""
    made = make_scheduler(tmp_path)
    made.add_request(make_request("r0", NUM_PROMPT))
    assert take_step(made) == []
    return made


def test_a_prompt_of_whole_blocks_and_a_token(scheduler: Scheduler) -> None:
    scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("r1", 2 * BLOCK_SIZE + 1))
    assert take_step(scheduler) == [BLOCK_SIZE]


def test_a_request_that_is_resumed(scheduler: Scheduler) -> None:
    while scheduler.requests["r0"].num_tokens <= 2 * BLOCK_SIZE:
        take_step(scheduler)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    assert take_step(scheduler) == [BLOCK_SIZE]
