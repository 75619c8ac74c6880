"""The calls of a connector's worker side by vLLM's first model runner (`GPUModelRunner`).

Model Runner V2 has calls of its own (`ActiveKVConnector`). The first one uses
`KVConnectorModelRunnerMixin`. Beside a drafter it waits for saves when the drafter has run, which
is after it has asked what is over.
"""

from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Any

from kvproof.live import adapt

MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin:KVConnectorModelRunnerMixin"


class FirstRunner:
    """The calls, by the names that those of Model Runner V2 have."""

    def __init__(self, connector: Any, vllm_config: Any) -> None:
        self.connector, self.vllm_config = connector, vllm_config
        self.mixin: Any = adapt.first([MIXIN])
        self.drafts = vllm_config.speculative_config is not None
        self.step: AbstractContextManager[Any] | None = None
        self.output: Any = None

    def begin(self, output: Any) -> None:
        """A step begins. Blocks are not zeroed or copied yet, as they are when Model Runner V2
        reports preemptions to its connector."""
        self.connector.handle_preemptions(output.kv_connector_metadata)

    def pre_forward(self, output: Any) -> None:
        """Before a forward pass."""
        self.step = self.mixin.maybe_get_kv_connector_output(output, defer_finalize=self.drafts)
        self.output = self.step.__enter__()

    def post_forward(self, _finished_req_ids: AbstractSet[str]) -> Any:
        """After a forward pass, and one of the drafter."""
        assert self.step is not None
        self.step.__exit__(None, None, None)
        self.step = None
        if self.drafts:
            self.mixin.finalize_kv_connector()
        return self.output

    def no_forward(self, output: Any) -> Any:
        """In a step without a forward pass."""
        return self.mixin.kv_connector_no_forward(output, self.vllm_config)
