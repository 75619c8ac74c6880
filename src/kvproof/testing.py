"""What tests of other projects use of kvproof: the contract of a KV connector as a test class."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

from kvproof.model.errors import UsageError

__all__ = ["ConnectorConformance"]


class ConnectorConformance:
    """Extend it in a test file, and name the connector:

        class TestMyStore(ConnectorConformance):
            connector = "my_package.my_store:MyStore"
            extra = {"path": "{tmp}"}

    `connector` is a class, `module:Class`, or a name that vLLM has registered. `extra` are its
    `kv_connector_extra_config`; `{tmp}` in a text is a folder that is new in each episode.
    `examples` is the number of random episodes and `seed` their seed. `keeps_prompts` says that the
    connector stores each whole block of a prompt that was computed and never forgets it.
    `forgets` says that the files in `{tmp}` may be lost at any time: a load fails, and the
    connector reports it. Some of them may be lost alone, if their names end with `.bin`, `.npy`,
    `.pt` or `.safetensors`.
    `async_scheduling` says whether steps may overlap.
    """

    connector: ClassVar[str | type] = ""
    extra: ClassVar[Mapping[str, Any]] = {}
    examples: ClassVar[int] = 200
    seed: ClassVar[int] = 0
    keeps_prompts: ClassVar[bool] = False
    forgets: ClassVar[bool] = False
    async_scheduling: ClassVar[bool] = True

    def test_contract(self) -> None:
        """Random episodes keep every check of the contract."""
        if find_spec("vllm") is None:
            raise UsageError("vLLM is not installed here. Use an environment that has it.")
        from kvproof.gate.connectors.alone import confirm
        from kvproof.gate.connectors.search import search
        from kvproof.gate.connectors.shown import shown
        from kvproof.live.connectors.subject import TestedConnector

        named = self.connector
        name = named if isinstance(named, str) else f"{named.__module__}:{named.__qualname__}"
        subject = TestedConnector(name, self.extra, self.keeps_prompts, self.forgets)
        found = search(subject, self.examples, self.seed, overlaps=self.async_scheduling)
        confirm(subject, found)
        text = "\n" + "\n".join(shown(subject, found))
        assert found.played is None, text
        assert not found.nothing_judged, text
